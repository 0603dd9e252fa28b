"""The page of models and GPUs: what a service that leaves everything to Auto gets on each, by `explain`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from graphpod_operator.api.names import API_VERSION, KIND
from graphpod_operator.api.spec import Spec
from graphpod_operator.docs.markdown import table
from graphpod_operator.explain.explanation import Explanation, Verdict, explain
from graphpod_operator.explain.manifest import Manifest
from graphpod_policy import GPUS, ModelFacts
from graphpod_policy.units import count


class Model(NamedTuple):
    """A model as its owner published it: what a start reads of its config.json."""

    name: str
    config: dict[str, Any]


_QWEN3 = {"head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151936, "max_position_embeddings": 40960}
_LLAMA = {"num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072}


def _decoder(
    architecture: str, hidden: int, inner: int, layers: int, heads: int, *, tied: bool, **more: Any
) -> dict[str, Any]:
    return {
        "architectures": [architecture], "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads, "tie_word_embeddings": tied,
        "rms_norm_eps": 1e-6, "rope_theta": 1_000_000, **more,
    }  # fmt: skip


MODELS = (
    Model("Qwen3-0.6B", _decoder("Qwen3ForCausalLM", 1024, 3072, 28, 16, tied=True, **_QWEN3)),
    Model("Qwen3-8B", _decoder("Qwen3ForCausalLM", 4096, 12288, 36, 32, tied=False, **_QWEN3)),
    Model("Llama-3.1-8B", _decoder("LlamaForCausalLM", 4096, 14336, 32, 32, tied=False, **_LLAMA)),
    Model("Qwen3-32B", _decoder("Qwen3ForCausalLM", 5120, 25600, 64, 64, tied=False, **_QWEN3)),
    Model("Llama-3.1-70B", _decoder("LlamaForCausalLM", 8192, 28672, 80, 64, tied=False, **_LLAMA)),
)

INTRODUCTION = """\
What a pod derives when `spec.engine` and `spec.graph` are left out, on one GPU with nothing else on it.
`graphpod explain` computes these rows. For another model give it the model's `config.json`:

```
.venv/bin/graphpod explain -f service.yaml --node gpu=H100 --model-config config.json
```

- **context** and **batch** are the tokens of one sequence and the sequences decoded together.
- **KV cache** is the number of tokens that all sequences and cached prefixes share, by estimate. On one H200 the shape
  of Qwen3-8B got 793 648 tokens before decode had its own kernel; with its memory, the estimate is 793 840.
- **start** is a careful estimate. On that H200 the same shape was Ready after 33 s.
- **graphs** are the policy of prefill and decode, each with the number of its sizes.
- **attention** names the kernels of prefill. `fa3` assumes an image with flashinfer's kernels for Hopper, built with
  [`make images-cuda KERNELS=…`](../how-to/gpu.md#3-push-the-images). An image without them runs `torch` in each row.
  Decode runs our own kernel from compute capability 8.0. Below (T4) PyTorch decodes, and the automatic context is 2048
  tokens.
- A100, H100 and B200 are those with 80, 80 and 180 GB.
- Speeds are in [Performance](../performance.md). H200 and H100 have been measured, outside a container. The other rows
  are computed only.
"""
HEAD = ("GPU", "context", "batch", "KV cache", "dtype", "attention", "graphs: prefill, decode", "start")


def body() -> Iterator[str]:
    """The page without its title."""
    yield INTRODUCTION
    for model in MODELS:
        facts = ModelFacts.of(model.config).served
        yield f"\n## {model.name}\n\n"
        yield table(HEAD, (_row(name, _explained(model.name.lower(), facts, name)) for name in GPUS))


def _explained(name: str, model: ModelFacts, gpu: str) -> Explanation:
    raw = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"model": {"uri": f"pvc://weights/{name}"}, "resources": {"limits": {"nvidia.com/gpu": 1}}},
    }
    manifest = Manifest("", name, "default", Spec.model_validate(raw["spec"]), raw)
    return explain(manifest, model, GPUS[gpu].node())


def _row(gpu: str, found: Explanation) -> tuple[str, ...]:
    if found.verdict is Verdict.CannotStart:
        return (gpu, f"cannot start: {found.obstacles[0].reason}", *("" for _ in HEAD[2:]))
    graphs = ", ".join(f"{row.planned} ({len(row.sizes)})" for row in found.final.phases.values())
    limits, attention = found.limits, found.attention
    assert attention is not None, "model and GPU are known"
    return (
        gpu,
        str(limits.context),
        str(limits.batch),
        count(limits.kv_tokens or 0),
        str(found.dtype),
        str(attention.kernels),
        graphs,
        f"{found.final.budget.start_seconds} s",
    )
