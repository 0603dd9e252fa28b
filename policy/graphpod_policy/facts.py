"""What a spec cannot say: the model's shape, the device, what was free and found. Known to the engine once it has
loaded the model, and to `graphpod explain` when it is told. Facts can only weaken a plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GIB = 1 << 30

GPU_MEMORY: dict[str, int] = {
    "T4": 16,
    "L4": 24,
    "A10": 24,
    "L40S": 48,
    "A100-40G": 40,
    "A100": 80,
    "H100": 80,
    "H200": 141,
    "B200": 180,
}
"""GiB by the name a user gives with `--node gpu=NAME`."""

LATENT_ATTENTION = ("DeepseekV2", "DeepseekV3", "DeepseekV32", "DeepseekV4", "GlmMoeDsa", "KimiK2")
"""Architectures with multi-head latent attention, by the beginning of their name."""
LINEAR_ATTENTION = ("Qwen3Next", "BailingMoeV2_5", "NemotronH", "Jamba", "FalconH1", "Qwen3_5", "KimiLinear")
"""Architectures with linear-attention or Mamba layers."""
DIFFUSION = ("LLaDA",)
"""Architectures that denoise blocks of tokens instead of decoding one after the other."""


class ModelUnreadable(ValueError):
    """A config.json that does not describe a model; the message names the field."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model as its config.json describes it. `params` is an estimate from the shape, in weights."""

    architecture: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    experts: int = 0
    """Experts of each layer; 0: a dense model."""
    multimodal: bool = False
    max_position: int | None = None
    """Most tokens of one sequence that the model knows; None: its configuration does not say."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ModelFacts":
        """The facts in a parsed config.json; ModelUnreadable names a field that is missing or no number."""
        text = config.get("text_config", config)
        if not isinstance(text, Mapping):
            raise ModelUnreadable(f"text_config: expected an object, found {text!r}")
        heads = _count(text, "num_attention_heads")
        hidden = _count(text, "hidden_size")
        named = config.get("architectures") or [str(config.get("model_type", ""))]
        if not isinstance(named, list):
            raise ModelUnreadable(f"architectures: expected a list of names, found {named!r}")
        return cls(
            architecture=str(named[0]),
            layers=_count(text, "num_hidden_layers"),
            hidden=hidden,
            intermediate=_count(text, "intermediate_size"),
            heads=heads,
            kv_heads=_count(text, "num_key_value_heads", heads),
            head_dim=_count(text, "head_dim", hidden // heads),
            vocab=_count(text, "vocab_size"),
            experts=_count(text, "num_experts", _count(text, "n_routed_experts", 0)),
            multimodal="vision_config" in config or "audio_config" in config,
            max_position=_count(text, "max_position_embeddings", 0) or None,
        )

    @property
    def params(self) -> int:
        """Weights: attention, gated MLP (of every expert), embedding and head."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        mlp = 3 * self.hidden * self.intermediate * max(1, self.experts)
        return self.layers * (attention + mlp) + 2 * self.vocab * self.hidden

    @property
    def latent_attention(self) -> bool:
        """Whether attention works on a compressed KV (MLA)."""
        return self.architecture.startswith(LATENT_ATTENTION)

    @property
    def hybrid(self) -> bool:
        """Whether some layers are linear attention or Mamba."""
        return self.architecture.startswith(LINEAR_ATTENTION)

    @property
    def diffusion(self) -> bool:
        """Whether it denoises blocks instead of decoding token by token."""
        return self.architecture.startswith(DIFFUSION)


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known beyond the spec; None: not known. `attention_layers` were found in the loaded model,
    `configured_layers` are what its configuration gives this stage of the pipeline; `gpu_memory_bytes` is the memory
    of one GPU, `free_bytes` what captures may take of it (or of the host's memory on a CPU). `reads_whole_tables`: a
    captured decode step attends over the whole block table of every sequence, whatever its length (torch's attention on
    a GPU).
    """

    attention_layers: int | None = None
    configured_layers: int | None = None
    model: ModelFacts | None = None
    gpu_memory_bytes: int | None = None
    free_bytes: int | None = None
    reads_whole_tables: bool = False


NOTHING_KNOWN = Facts()


def _count(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    raw = config.get(name)
    if raw is None and default is not None:
        return default
    least = 0 if default == 0 else 1
    if not isinstance(raw, int) or isinstance(raw, bool) or raw < least:
        raise ModelUnreadable(f"{name}: expected a number of at least {least}, found {raw!r}")
    return raw
