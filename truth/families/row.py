"""What `families.json` says of a model type before it runs: its architecture, and where its sizes stand."""

from typing import Any

from transformers import CONFIG_MAPPING
from transformers.integrations.heterogeneity.configuration_utils import AmbiguousGlobalPerLayerAttributeError
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

SIZES: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size",),
    "layers": ("num_hidden_layers",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "intermediate": ("intermediate_size",),
    "vocab": ("vocab_size",),
    "positions": ("max_position_embeddings",),
    "chosen_keys": ("index_topk",),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "expert_intermediate": ("moe_intermediate_size",),
    "tied": ("tie_word_embeddings",),
}
"""Ours: transformers' standard names."""
RECURRENT = ("mamba", "linear", "conv", "recurrent", "rwkv", "state", "ssm", "lstm", "kda", "delta")
"""Words in the names of layers, or of fields, that keep a state."""


def row_of(model_type: str) -> dict[str, Any]:
    """The row of `model_type`, by the type's own defaults; without sizes where it has none."""
    row: dict[str, Any] = {"architecture": MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type], "text": "", "fields": {}}
    try:
        whole = CONFIG_MAPPING[model_type]()
        part = whole.get_text_config(decoder=True)
        text = next((name for name in whole.sub_configs if getattr(whole, name, None) is part), "")
        return row | {"text": text, "fields": _fields(part), "recurrent": _recurrent(part)}
    except Exception:  # noqa: BLE001 (a type without usable defaults is refused for them)
        return row | {"recurrent": False}


def _fields(part: Any) -> dict[str, tuple[str, Any]]:
    """For each size: its field, and the default."""
    fields = {}
    for size, names in SIZES.items():
        for name in names:
            field = part.attribute_map.get(name, name)
            value = _value(part, field)
            if isinstance(value, list | tuple) and value and isinstance(value[0], int):
                value = max(value)
            if isinstance(value, int):
                fields[size] = (field, value)
                break
    known = {size: value for size, (_, value) in fields.items()}
    hidden, heads = known.get("hidden", 0), known.get("heads", 1)
    for size, derived in (("kv_heads", heads), ("head_dim", hidden // heads), ("intermediate", 4 * hidden)):
        if known.get(size) == derived:
            # It follows from the others, which a config.json may change.
            fields[size] = (fields[size][0], None)
    return fields


def _value(part: Any, field: str) -> Any:
    """None for a field that is missing; the one of the whole where layers may have others."""
    try:
        return getattr(part, field, None)
    except AmbiguousGlobalPerLayerAttributeError:
        return part.to_dict()[field]


def _recurrent(part: Any) -> bool:
    """Whether layers of the type are known by name to keep a state of a sequence."""
    kinds = [
        str(kind)
        for field in ("layer_types", "layers_block_type", "block_types")
        for kind in (getattr(part, field, None) or ())
    ]
    named = [part.model_type, *kinds] if kinds else [part.model_type, *vars(part)]
    if kinds:
        return any(word in name for name in named for word in RECURRENT)
    return any(name.startswith(RECURRENT) or f"_{word}_" in name for name in named for word in RECURRENT[:4])
