"""Small random models, one of each architecture the engine knows, and how exactly graphs must equal eager on each."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graphpod_policy import Device, KvCacheDtype, Quantization
from graphpod_policy.model.architectures import ARCHITECTURES
from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.compiled import source_comparison
from graphpod_runtime.models.model import Model
from graphpod_runtime.models.random import random_model
from graphpod_runtime.models.weights.fp8 import fp8_weights

VOCAB = 211
CONTEXT = 160
"""Tokens of the longest sequence."""
DEVIATION = 0.2
"""Of matrices: ten times a trained model's start, so that logits are far from flat."""
SUFFIX = "ForCausalLM"


@dataclass(frozen=True, slots=True)
class Subject:
    """One row group of the matrix: a model and the number formats it runs in.

    `fixed`: another token is forgiven when eager finds it less than NEAR_TIE behind the likeliest. Otherwise the bound
    is measured: what another batch shape does to eager itself.
    """

    name: str
    architecture: str
    config: Mapping[str, Any]
    dtype: str = "float32"
    kv_cache_dtype: KvCacheDtype = KvCacheDtype.Auto
    quantization: Quantization | None = None
    page_size: int = 4
    fixed: bool = True

    @property
    def rounded_to_fp8(self) -> bool:
        """Whether activations are: a last place tips some of them to the next number of FP8, an eighth off."""
        return self.quantization is not None or "quantization_config" in self.config

    def folder(self, parent: Path) -> Path:
        """A folder with its config.json."""
        folder = parent / self.name.replace(" ", "-").replace(",", "").lower()
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(dict(self.config)))
        return folder


BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 96,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "eos_token_id": 2,
}

SPECIAL: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {"head_dim": 32, "num_attention_heads": 3},
    "Qwen2ForCausalLM": {"tie_word_embeddings": False},
    "Qwen3ForCausalLM": {"head_dim": 32},
    "MiMoForCausalLM": {"tie_word_embeddings": False, "num_nextn_predict_layers": 1},
    "MistralForCausalLM": {"sliding_window": 12, "head_dim": 32},
    "GemmaForCausalLM": {"num_key_value_heads": 1},
    "Gemma2ForCausalLM": {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 24,
        "sliding_window": 12,
        "attn_logit_softcapping": 4.0,
        "final_logit_softcapping": 8.0,
    },
    "Phi3ForCausalLM": {"head_dim": 32, "partial_rotary_factor": 0.5, "tie_word_embeddings": False},
    "GraniteForCausalLM": {
        "embedding_multiplier": 4.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.5,
        "logits_scaling": 2.0,
    },
    "Starcoder2ForCausalLM": {"hidden_act": "gelu_pytorch_tanh", "sliding_window": 12},
    "GlmForCausalLM": {"head_dim": 32},
    "Glm4ForCausalLM": {"head_dim": 32},
    "CohereForCausalLM": {"use_qk_norm": True},
    "Cohere2ForCausalLM": {"sliding_window": 12, "sliding_window_pattern": 3},
    "MixtralForCausalLM": {"num_local_experts": 6, "num_experts_per_tok": 2},
    "Qwen2MoeForCausalLM": {
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 32,
        "mlp_only_layers": [1],
    },
    "Qwen3MoeForCausalLM": {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "norm_topk_prob": True,
        "head_dim": 32,
    },
    "DeepseekV2ForCausalLM": {
        "num_key_value_heads": 6,
        "q_lora_rank": 24,
        "kv_lora_rank": 40,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 20,
        "first_k_dense_replace": 1,
        "n_routed_experts": 6,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "topk_method": "group_limited_greedy",
        "n_group": 3,
        "topk_group": 2,
        "routed_scaling_factor": 2.0,
    },
    "OlmoeForCausalLM": {"num_experts": 6, "num_experts_per_tok": 2, "tie_word_embeddings": False},
    "GraniteMoeForCausalLM": {
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "embedding_multiplier": 4.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.5,
        "logits_scaling": 2.0,
    },
    "Gemma3ForCausalLM": {
        "num_hidden_layers": 7,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 24,
        "sliding_window": 12,
        "sliding_window_pattern": 6,
        "layer_types": [*["sliding_attention"] * 5, "full_attention", "sliding_attention"],
        "rope_local_base_freq": 5000.0,
    },
}
"""What an architecture's small model has of its own; one that is not listed is BASE."""

FP8: dict[str, dict[str, Any]] = {
    "blocks": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "static": {"quant_method": "fp8", "activation_scheme": "static"},
}
"""`quantization_config` of checkpoints by form."""

WIDE: dict[str, Any] = {"hidden_size": 256, "head_dim": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
"""Heads as wide as flashinfer's kernels want them."""


def small(architecture: str) -> Subject:
    """The fp32 subject of an architecture."""
    config = BASE | {"architectures": [architecture]} | SPECIAL.get(architecture, {})
    if architecture.startswith("Gemma"):
        config.pop("hidden_act")
    return Subject(architecture.removesuffix(SUFFIX), architecture, config)


def subjects(device: Device) -> tuple[Subject, ...]:
    """Every decoder the engine knows in fp32 (one that is the text part of a larger model is another row's); on a GPU
    also 16-bit activations, with the KV cache in both formats, where flashinfer's kernels run."""
    exact = tuple(small(architecture) for architecture, row in ARCHITECTURES.items() if not row.text_part)
    if device is Device.Cpu:
        return exact
    architecture = "Qwen3ForCausalLM"
    config = BASE | {"architectures": [architecture]} | WIDE
    settings: dict[str, Any] = {"dtype": "bfloat16", "page_size": 16, "fixed": False}
    return (
        *exact,
        Subject("Qwen3 bf16", architecture, config, **settings),
        Subject("Qwen3 bf16, FP8 KV", architecture, config, kv_cache_dtype=KvCacheDtype.Fp8, **settings),
    )


def fp8_subjects(device: Device) -> tuple[Subject, ...]:
    """Weights in each form of FP8, under 16-bit activations: a last place of theirs tips what is rounded to FP8, as
    another batch shape shows. Not among `subjects` until a whole run of them is recorded; `--subject FP8` runs them."""
    architecture = "LlamaForCausalLM"
    config = BASE | {"architectures": [architecture]} | SPECIAL[architecture]
    settings: dict[str, Any] = {"dtype": "bfloat16", "page_size": 4 if device is Device.Cpu else 16, "fixed": False}
    of = {form: config | {"quantization_config": scheme} for form, scheme in FP8.items()}
    return (
        *(Subject(f"Llama FP8 {form}", architecture, config, **settings) for form, config in of.items()),
        Subject("Llama FP8 online", architecture, config, quantization=Quantization.Fp8, **settings),
    )


def load(
    folder: Path,
    dtype: torch.dtype,
    max_model_len: int,
    device: torch.device,
    read: OnProgress = ignore_progress,
    quantize: bool = False,
) -> Model:
    """Is a LoadModel: the same weights on every device, drawn on the host."""
    model = random_model(folder, dtype, max_model_len, device, read, quantize)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.module().parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        drawn = noise * DEVIATION if parameter.dim() > 1 else parameter.data.float().cpu() + 0.3 * noise
        parameter.data.copy_(drawn)
    for weight in fp8_weights(model.module()):
        weight.fill(torch.randn(weight.matrix.shape, generator=generator).to(device) * DEVIATION)
    return model


def nudged(
    folder: Path,
    dtype: torch.dtype,
    max_model_len: int,
    device: torch.device,
    read: OnProgress = ignore_progress,
    quantize: bool = False,
    *,
    seed: int = 1,
) -> Model:
    """As `load`, every weight a unit or two in the last place off, up or down by `seed`; FP8 matrices as they are."""
    model = load(folder, dtype, max_model_len, device, read, quantize)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.module().parameters():
        parameter.data.copy_(source_comparison.nudged(parameter.data.cpu(), generator))
    return model
