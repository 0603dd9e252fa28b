"""Architectures the engine knows, by `architectures[0]` of config.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Architecture:
    """What config.json means for one architecture."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Of fields that config.json may leave out, as transformers has them."""
    qkv_bias: bool = False
    """Whether q, k and v have biases without being asked for; the output projection has none then."""
    qk_norm: bool = False
    gemma: bool = False
    """Gemma's norms, scaled embeddings and scale of attention; windows and their rotary positions by layer."""
    text_part: bool = False
    """Whether the decoder is the `text_config` of a model that sees images, too; that part is left out."""

    @property
    def overflows_float16(self) -> bool:
        """Whether activations may exceed what float16 can hold (65504). Gemma-3's do; vLLM refuses it, too."""
        return self.gemma

    @property
    def activation(self) -> tuple[str, str]:
        """The field that names the gate of an MLP, and the only value that is built."""
        return ("hidden_activation", "gelu_pytorch_tanh") if self.gemma else ("hidden_act", "silu")

    def tensor(self, name: str) -> str | None:
        """The decoder's name of the checkpoint's tensor `name`; None for one of a part that is left out."""
        if not self.text_part:
            return name
        if name.startswith(("vision_tower.", "multi_modal_projector.")):
            return None
        if name.startswith(("model.vision_tower.", "model.multi_modal_projector.")):
            return None
        return name.removeprefix("language_model.").replace("model.language_model.", "model.", 1)


TIED = {"tie_word_embeddings": True}
WINDOWED = {"sliding_window": 4096}
UPPER_WINDOWED = WINDOWED | {"max_window_layers": 28}
GEMMA3 = (
    TIED
    | WINDOWED
    | {
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "query_pre_attn_scalar": 256,
        "sliding_window_pattern": 6,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
    }
)

ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": Architecture(),
    "Qwen2ForCausalLM": Architecture(UPPER_WINDOWED, qkv_bias=True),
    "Qwen3ForCausalLM": Architecture(UPPER_WINDOWED, qk_norm=True),
    "Gemma3ForCausalLM": Architecture(GEMMA3, qk_norm=True, gemma=True),
    "Gemma3ForConditionalGeneration": Architecture(GEMMA3, qk_norm=True, gemma=True, text_part=True),
}
"""By `architectures[0]` of config.json."""
