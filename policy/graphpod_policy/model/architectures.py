"""Architectures the engine knows, by `architectures[0]` of config.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from graphpod_policy.model.mixture import GROUPED, MixtureFields


class Norm(StrEnum):
    """What stands in front of attention and MLP, and at the end."""

    Rms = "Rms"
    """By the root of the mean square, rounded, and by a weight."""
    RmsWide = "RmsWide"
    """Rounded once, behind the weight."""
    RmsPlusOne = "RmsPlusOne"
    """The same; the checkpoint's weight w means 1 + w."""
    Layer = "Layer"
    """By mean and variance, and by a weight."""
    LayerBias = "LayerBias"
    """And a bias."""


class HeadNorm(StrEnum):
    """How queries and keys are normalised before their rotation."""

    Each = "Each"
    """Each head by one weight of a head's width."""
    All = "All"
    """All heads of a token together, by a weight of their width."""
    Own = "Own"
    """Each head by mean and variance, and by a weight of its own."""


class Windows(StrEnum):
    """Which layers attend to a window."""

    Asked = "Asked"
    """Where `use_sliding_window` is true: those of `layer_types`, or from `max_window_layers` on."""
    Pattern = "Pattern"
    """Those of `layer_types`, or all but each `sliding_window_pattern`-th."""
    Every = "Every"
    """All, where there is a `sliding_window`."""
    AskedEvery = "AskedEvery"
    """All, where `use_sliding_window` is true."""
    AskedOther = "AskedOther"
    """Where `use_sliding_window` is true: those of `layer_types`, or every other one below `max_window_layers`."""


ATTENTION_MLP = {"attention_bias": "qkv out", "mlp_bias": "mlp"}
"""Fields and what they give biases to: q, k and v; the projection of attention's result; the MLP."""
FULL_LAYERS = "full"
"""Of `Architecture.unrotated`: layers without a window."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """What config.json means for one architecture. Llama is the plain one."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Of fields that config.json may leave out, as transformers has them."""
    biases: Mapping[str, str] = field(default_factory=lambda: ATTENTION_MLP)
    """Which matrices have biases where a field is true; "": whatever config.json says."""
    qk_norm: HeadNorm | None = None
    qk_norm_field: str = ""
    """The field that asks for it; "": none has to."""
    norm: Norm = Norm.Rms
    eps: str = "rms_norm_eps"
    norm_inputs: bool = True
    """Whether attention and MLP read normalised input."""
    norm_results: bool = False
    """Whether attention's and the MLP's results are normalised before they are added."""
    parallel: bool = False
    """Whether attention and MLP read the same input."""
    gated: bool = True
    """Whether an MLP has a gate."""
    interleaved: bool = False
    """Whether a rotation turns elements 2i and 2i + 1 of a head, not i and i + half."""
    partial: bool = False
    """Whether `partial_rotary_factor` may leave elements of a head as they are."""
    fused: tuple[str, ...] = ()
    """Matrices of the checkpoint that are several in others, and one here."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Modules of a layer in the checkpoint, and their names here, one after the other."""
    gemma: bool = False
    """Gemma's scaled embeddings."""
    scale: str = ""
    """The field of what query · key is multiplied by; with `gemma`, of what it is divided by the root of."""
    multipliers: bool = False
    """Whether embeddings, results of a layer's parts and logits have factors of their own."""
    logit_scale: bool = False
    caps: bool = False
    """Whether scores and logits may be capped."""
    windows: Windows | None = Windows.Asked
    local_rope: bool = False
    """Whether windowed layers have rotary positions of their own."""
    unrotated: str = ""
    """Which layers have no rotation: FULL_LAYERS, or the field that lists a 0 for each; "": none."""
    activation: tuple[str, tuple[str, ...]] = ("hidden_act", ("silu",))
    """The field that names the activation of an MLP, and the values that are built."""
    mixture: MixtureFields | None = None
    """Where layers have experts in place of one MLP: the fields that say how many."""
    clip: str = ""
    """The field of the largest value that elements of queries, keys and values may have; "": any."""
    latent: bool = False
    """Whether keys and values are projections of a latent (MLA), which the KV cache holds in their place."""
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Fields that would change the arithmetic, and their values that do not; others are refused."""
    text_part: bool = False
    """Whether the decoder is the `text_config` of a model that sees images, too; that part is left out."""
    aside: str = ""
    """How names of tensors begin that are no part of the decoder: layers that draft for it."""

    @property
    def overflows_float16(self) -> bool:
        """Whether activations may exceed what float16 can hold (65504). Gemma's do; vLLM refuses Gemma-3, too."""
        return self.gemma

    @property
    def own_order(self) -> bool:
        """Whether the rows of a matrix stand in another order, or in another matrix, than in the checkpoint."""
        return self.interleaved or bool(self.fused) or not self.gated

    def tensor(self, name: str) -> str | None:
        """The decoder's name of the checkpoint's tensor `name`; None for one of a part that is left out."""
        if self.aside and name.startswith(self.aside):
            return None
        if not self.text_part:
            return self._renamed(name)
        if name.startswith(("vision_tower.", "multi_modal_projector.")):
            return None
        if name.startswith(("model.vision_tower.", "model.multi_modal_projector.")):
            return None
        return name.removeprefix("language_model.").replace("model.language_model.", "model.", 1)

    def _renamed(self, name: str) -> str:
        for stored, own in self.renamed.items():
            name = name.replace(f".{stored}.", f".{own}.")
        return name


TIED = {"tie_word_embeddings": True}
WINDOWED = {"sliding_window": 4096}
LLAMA = {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048, "eos_token_id": 2}
QWEN_MIXTURE = WINDOWED | {"rms_norm_eps": 1e-6, "max_position_embeddings": 32768}
QWEN = QWEN_MIXTURE | {"max_window_layers": 28, "num_key_value_heads": 32}
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
        "eos_token_id": 1,
        "sliding_window_pattern": 6,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
    }
)
GEMMA2 = (
    TIED
    | WINDOWED
    | {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "eos_token_id": 1,
        "query_pre_attn_scalar": 256,
        "sliding_window_pattern": 2,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    }
)
GELU = ("gelu_pytorch_tanh",)
GEMMA_FEATURES: dict[str, Any] = {"gemma": True, "norm": Norm.RmsPlusOne}
GEMMA3_FEATURES: dict[str, Any] = GEMMA_FEATURES | {
    "qk_norm": HeadNorm.Each,
    "norm_results": True,
    "scale": "query_pre_attn_scalar",
    "windows": Windows.Pattern,
    "local_rope": True,
    "activation": ("hidden_activation", GELU),
}
GLM_FEATURES: dict[str, Any] = {
    "biases": {"attention_bias": "qkv"},
    "interleaved": True,
    "partial": True,
    "fused": ("mlp.gate_up_proj",),
    "windows": None,
}
GLM = {
    "attention_bias": True,
    "head_dim": 128,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1.5625e-07,
    "max_position_embeddings": 131072,
    "eos_token_id": [151329, 151336, 151338],
}
COHERE_FEATURES: dict[str, Any] = {
    "norm": Norm.Layer,
    "eps": "layer_norm_eps",
    "parallel": True,
    "interleaved": True,
    "logit_scale": True,
}
GRANITE_FEATURES: dict[str, Any] = {"scale": "attention_multiplier", "multipliers": True, "windows": None}
GRANITE = LLAMA | {
    "embedding_multiplier": 1.0,
    "attention_multiplier": 1.0,
    "residual_multiplier": 1.0,
    "logits_scaling": 1.0,
}
DEEPSEEK_V2 = {
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 2048,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "moe_intermediate_size": 1407,
    "topk_method": "greedy",
    "eos_token_id": 2,
}
COHERE = TIED | {
    "layer_norm_eps": 1e-5,
    "logit_scale": 0.0625,
    "max_position_embeddings": 8192,
    "eos_token_id": 255001,
}

ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": Architecture(LLAMA, windows=None),
    "MistralForCausalLM": Architecture(
        LLAMA | WINDOWED | {"max_position_embeddings": 131072, "num_key_value_heads": 8},
        biases={},
        windows=Windows.Every,
    ),
    "Qwen2ForCausalLM": Architecture(QWEN, biases={"": "qkv"}),
    "Qwen3ForCausalLM": Architecture(QWEN, qk_norm=HeadNorm.Each),
    "MiMoForCausalLM": Architecture(QWEN, biases={"": "qkv"}, aside="model.mtp_layers."),
    "GemmaForCausalLM": Architecture(
        TIED
        | {
            "num_key_value_heads": 16,
            "head_dim": 256,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-6,
            "eos_token_id": 1,
        },
        **GEMMA_FEATURES,
        windows=None,
        activation=("hidden_act", (*GELU, "gelu")),
    ),
    "Gemma2ForCausalLM": Architecture(
        GEMMA2,
        **GEMMA_FEATURES,
        norm_results=True,
        scale="query_pre_attn_scalar",
        caps=True,
        windows=Windows.Pattern,
        activation=("hidden_activation", GELU),
    ),
    "Gemma3ForCausalLM": Architecture(GEMMA3, **GEMMA3_FEATURES),
    "Gemma3ForConditionalGeneration": Architecture(GEMMA3, **GEMMA3_FEATURES, text_part=True),
    "Phi3ForCausalLM": Architecture(
        {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "eos_token_id": 32000},
        biases={},
        partial=True,
        fused=("self_attn.qkv_proj", "mlp.gate_up_proj"),
        windows=Windows.Every,
    ),
    "GraniteForCausalLM": Architecture(GRANITE, **GRANITE_FEATURES),
    "GraniteMoeForCausalLM": Architecture(
        GRANITE
        | {
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        **GRANITE_FEATURES,
        biases={"attention_bias": "qkv out"},
        mixture=MixtureFields(),
        renamed={
            "block_sparse_moe": "mlp",
            "mlp.router.layer": "mlp.gate",
            "mlp.router": "mlp.gate",
            "mlp.input_linear": "mlp.experts.gate_up_proj",
            "mlp.output_linear": "mlp.experts.down_proj",
        },
    ),
    "MixtralForCausalLM": Architecture(
        {
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "rope_theta": 1e6,
            "eos_token_id": 2,
        },
        biases={},
        windows=Windows.Every,
        mixture=MixtureFields(),
        renamed={"block_sparse_moe": "mlp", "w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"},
    ),
    "Qwen2MoeForCausalLM": Architecture(
        QWEN_MIXTURE
        | {
            "num_key_value_heads": 16,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "qkv_bias": True,
            "max_window_layers": 28,
        },
        biases={"qkv_bias": "qkv"},
        windows=Windows.AskedOther,
        mixture=MixtureFields(
            "moe_intermediate_size", "norm_topk_prob", "shared_expert_intermediate_size", sparse=True
        ),
    ),
    "Qwen3MoeForCausalLM": Architecture(
        QWEN_MIXTURE
        | {
            "num_key_value_heads": 4,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        },
        biases={"attention_bias": "qkv out"},
        qk_norm=HeadNorm.Each,
        windows=Windows.AskedEvery,
        mixture=MixtureFields("moe_intermediate_size", "norm_topk_prob", sparse=True),
    ),
    "OlmoeForCausalLM": Architecture(
        {
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 4096,
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "eos_token_id": 50279,
        },
        biases={"attention_bias": "qkv out"},
        qk_norm=HeadNorm.All,
        windows=None,
        clip="clip_qkv",
        mixture=MixtureFields(normalised="norm_topk_prob"),
    ),
    "DeepseekV2ForCausalLM": Architecture(
        DEEPSEEK_V2,
        biases={"attention_bias": "qkv out"},
        interleaved=True,
        windows=None,
        latent=True,
        mixture=MixtureFields(
            "moe_intermediate_size",
            "norm_topk_prob",
            first_dense="first_k_dense_replace",
            shared_experts="n_shared_experts",
            scale="routed_scaling_factor",
            grouped=True,
            wide_scores=True,
        ),
        renamed={"shared_experts": "shared_expert"},
        only={
            "mlp_bias": (False,),
            "moe_layer_freq": (1,),
            # The authors' code divides by the sum then, and transformers does not.
            "norm_topk_prob": (False,),
            "scoring_func": ("softmax",),
            "topk_method": ("greedy", GROUPED),
        },
    ),
    "Olmo2ForCausalLM": Architecture(
        {"rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "eos_token_id": 50279},
        biases={"attention_bias": "qkv out"},
        qk_norm=HeadNorm.All,
        norm=Norm.RmsWide,
        norm_inputs=False,
        norm_results=True,
        windows=None,
    ),
    "SmolLM3ForCausalLM": Architecture(
        TIED
        | {
            "rms_norm_eps": 1e-6,
            "max_position_embeddings": 32768,
            "num_key_value_heads": 4,
            "no_rope_layer_interval": 4,
            "rope_theta": 2e6,
            "eos_token_id": 128001,
        },
        unrotated="no_rope_layers",
    ),
    "Starcoder2ForCausalLM": Architecture(
        TIED | {"norm_epsilon": 1e-5, "max_position_embeddings": 4096, "use_bias": True, "num_key_value_heads": 2},
        biases={"use_bias": "qkv out mlp"},
        norm=Norm.LayerBias,
        eps="norm_epsilon",
        gated=False,
        renamed={"mlp.c_fc": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj"},
        windows=Windows.Every,
        activation=("hidden_act", GELU),
    ),
    "InternLM3ForCausalLM": Architecture(
        {"rms_norm_eps": 1e-5, "head_dim": 128, "num_key_value_heads": 2, "max_position_embeddings": 32768},
        biases=ATTENTION_MLP | {"qkv_bias": "qkv", "bias": "out mlp"},
        windows=None,
    ),
    "GlmForCausalLM": Architecture(GLM, **GLM_FEATURES),
    "Glm4ForCausalLM": Architecture(
        GLM,
        **GLM_FEATURES,
        norm_results=True,
        renamed={
            "post_attention_layernorm": "pre_feedforward_layernorm",
            "post_self_attn_layernorm": "post_attention_layernorm",
            "post_mlp_layernorm": "post_feedforward_layernorm",
        },
    ),
    "CohereForCausalLM": Architecture(
        COHERE | {"rope_theta": 5e5}, **COHERE_FEATURES, qk_norm=HeadNorm.Own, qk_norm_field="use_qk_norm", windows=None
    ),
    "Cohere2ForCausalLM": Architecture(
        COHERE | WINDOWED | {"sliding_window_pattern": 4},
        **COHERE_FEATURES,
        windows=Windows.Pattern,
        unrotated=FULL_LAYERS,
    ),
}
"""By `architectures[0]` of config.json."""
