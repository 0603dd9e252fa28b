"""Tiny random Llama models, and engines over them."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from graphpod_policy import (
    CompileMode,
    Device,
    EngineConfig,
    FeatureConfig,
    GraphConfig,
    ModelConfig,
    OnCaptureFailure,
    Phase,
    PhasePlan,
    Policy,
)
from graphpod_runtime.compiled.aot import Function, TensorFunction
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.compiled.cache_folder import FOLDER as CACHE_FOLDER
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.wire.report import Report
from tests.workers import worker

torch.set_num_threads(1)

PREFILL_SIZES = (4, 8, 16, 32)
DECODE_SIZES = (1, 2, 4, 8)


def write_llama(
    folder: Path, *, tied: bool = True, heads: int = 9, kv_heads: int = 3, seed: int = 0, **settings: Any
) -> Path:
    """A random Llama of three layers as a Hugging Face folder, by transformers itself.

    The weights are larger than a trained model's start values, so that logits are far from flat.
    """
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=heads * 16,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        tie_word_embeddings=tied,
        initializer_range=0.2,
        bos_token_id=1,
        **{
            "eos_token_id": 2,
            "vocab_size": 211,
            "num_hidden_layers": 3,
            "max_position_embeddings": 512,
            "rope_theta": 100000.0,
            "intermediate_size": 96,
        }
        | settings,
    )
    LlamaForCausalLM(config).eval().save_pretrained(folder)
    return folder


class Family(NamedTuple):
    """A family as transformers writes it, and what its tiny model's configuration says beyond sizes."""

    config: type[PreTrainedConfig]
    model: type[PreTrainedModel]
    settings: dict[str, Any]


WINDOW = 24
"""Tokens that windowed layers of tiny models attend to: fewer than most prompts have."""

FAMILIES: dict[str, Family] = {
    "qwen2": Family(Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3": Family(Qwen3Config, Qwen3ForCausalLM, {"num_attention_heads": 6}),
    "gemma3": Family(
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        {
            "num_attention_heads": 6,
            "sliding_window": WINDOW,
            "sliding_window_pattern": 3,
            "query_pre_attn_scalar": 24,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
}


def write_family(folder: Path, family: str, *, tied: bool = True, **settings: Any) -> Path:
    """A random model of another family, as `write_llama`. Its heads are wider than hidden / heads."""
    torch.manual_seed(0)
    row = FAMILIES[family]
    config = row.config(
        **{
            "vocab_size": 211,
            "hidden_size": 96,
            "head_dim": 32,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "num_key_value_heads": 3,
            "max_position_embeddings": 512,
            "tie_word_embeddings": tied,
            "initializer_range": 0.2,
            "bos_token_id": 1,
            "eos_token_id": 2,
        }
        | row.settings
        | settings
    )
    return save_random(row.model(config), folder)


def save_random(model: PreTrainedModel, folder: Path) -> Path:
    """`model` as a Hugging Face folder, its norms and biases random as well: by default they are 1 and 0."""
    for name, parameter in model.eval().named_parameters():
        if "norm" in name or name.endswith("bias"):
            parameter.data.add_(torch.randn_like(parameter), alpha=0.3)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied tiny Llama with three query heads per key head."""
    return write_llama(tmp_path_factory.mktemp("llama"))


def engine_config(folder: Path, prefill: Policy, decode: Policy, **changes: Any) -> EngineConfig:
    """A small engine over `folder`."""
    settings: dict[str, Any] = {
        "dtype": "float32",
        "max_model_len": 128,
        "max_batch": 8,
        "prefill_chunk": 32,
        "page_size": 4,
        "kv_cache_bytes": 8 << 20,
        "prefill_sizes": PREFILL_SIZES,
        "decode_sizes": DECODE_SIZES,
        "on_capture_failure": OnCaptureFailure.Fail,
    } | changes
    sizes = {Phase.Prefill: settings.pop("prefill_sizes"), Phase.Decode: settings.pop("decode_sizes")}
    phases = [
        PhasePlan(policy, policy, () if policy is Policy.Disabled else sizes[phase])
        for phase, policy in ((Phase.Prefill, prefill), (Phase.Decode, decode))
    ]
    compiled = settings.pop("compile", CompileMode.Nothing)
    graph = GraphConfig(*phases, on_capture_failure=settings.pop("on_capture_failure"), compile=compiled)
    asked = (
        "device",
        "gpus",
        "kv_cache_dtype",
        "quantization",
        "attention",
        "speculative",
        "speculative_steps",
        "speculative_topk",
        "speculative_draft_tokens",
        "speculative_max_batch",
        "speculative_draft",
        "host_cache_bytes",
        "host_cache_folder",
        "host_cache_file_bytes",
        "tensor",
        "pipeline",
        "sleep",
        "sleep_after_seconds",
        "reload",
        "expert",
        "nodes",
    )
    features = FeatureConfig(**{name: settings.pop(name) for name in asked if name in settings})
    return EngineConfig(model=ModelConfig("tiny", str(folder)), graph=graph, features=features, **settings)


@pytest.fixture(scope="session")
def device() -> Device:
    """Where engines run. Here on the CPU; `tests/contracts` run on both devices, `tests/gpu` on the other."""
    return Device.Cpu


def run_as_written(self: CompileCache, name: str, text: str, function: Function, examples: Any, rows: Any) -> Any:
    """In the place of `CompileCache._run`."""
    traced = TensorFunction(function, examples, rows)
    return lambda tensors: traced(*tensors)


@pytest.fixture
def as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled runs as it was written: for what stands around a compiler, which takes seconds."""
    monkeypatch.setattr(CompileCache, "_run", run_as_written)


@pytest.fixture
def started(
    llama_folder: Path, device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Runner]:
    """started(prefill, decode, **config changes) -> a Ready runner; every report it sent is in `.reports`.

    What one start has traced or compiled, later ones find, in all workers' tests that name no folder of their own.

    A `load` among the changes takes the place of load_model.
    """
    if CACHE_FOLDER not in os.environ:
        run = tmp_path_factory.getbasetemp()
        shared = run.parent if worker() else run
        monkeypatch.setenv(CACHE_FOLDER, str(shared / "compiled"))

    def start(prefill: Policy = Policy.Breakable, decode: Policy = Policy.Full, **changes: Any) -> Runner:
        folder, load = changes.pop("folder", llama_folder), changes.pop("load", load_model)
        reports: list[dict[str, Any]] = []

        def keep(report: Report) -> None:
            reports.append(report.as_dict())

        runner = Runner(engine_config(folder, prefill, decode, device=device, **changes), keep, load=load)
        runner.start()
        runner.reports = reports  # type: ignore[attr-defined]
        return runner

    return start


def random_prompts(count: int, *, shortest: int = 1, longest: int = 70, seed: int = 1) -> list[list[int]]:
    """Prompts of mixed length over the tiny vocabulary, end token excluded."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(3, 211, (length,), generator=generator).tolist() for length in lengths]


ASK_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture
def own_signals() -> Iterator[None]:
    """What this process does when it is asked to end is as it was after the test."""
    before = {number: signal.getsignal(number) for number in ASK_TO_END}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
