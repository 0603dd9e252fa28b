"""Heads that draft for a model from its hidden states: what their config.json declares, as SGLang and vLLM read it."""

from collections.abc import Mapping
from typing import Any

from graphpod_policy.enums import SpeculativeMethod
from graphpod_policy.model.shown import shown

Json = Mapping[str, Any]

ARCHITECTURE = "LlamaForCausalLM"
"""What the layers of a head are."""
FORMS: dict[SpeculativeMethod, tuple[str, ...]] = {
    SpeculativeMethod.Eagle: ("LlamaForCausalLMEagle", "EagleLlamaForCausalLM", ARCHITECTURE),
    SpeculativeMethod.Eagle3: ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", ARCHITECTURE),
}
"""Names by which heads are published, those of their authors last."""
MTP = ("MiMoForCausalLM",)
"""Architectures whose checkpoints have layers that draft for them and that are built."""
MTP_LAYERS = "num_nextn_predict_layers"
"""The field that counts them."""
DRAFT_VOCAB = "draft_vocab_size"
"""The field of the tokens that an EAGLE-3 head can draft; heads of EAGLE draft all."""
REFUSED = ("norm_before_residual", "norm_before_fc", "fc_norm", "add_para_norm", "target_hidden_size")
"""Fields of variants that compute something else; a true value is refused."""


def head_not_built(method: SpeculativeMethod, config: Json) -> str | None:
    """Why `config` has no head of `method` that this engine has; None: it has one. That of Mtp is in the model's."""
    if method is SpeculativeMethod.Mtp:
        return _mtp_not_built(config)
    named = config.get("architectures") or [str(config.get("model_type", ""))]
    name, forms = str(named[0]), FORMS[method]
    other = next((one for one, names in FORMS.items() if one is not method and name in names[:-1]), None)
    if other is None and name in forms:
        reduced = method is SpeculativeMethod.Eagle3
        if (config.get(DRAFT_VOCAB) is not None) is not reduced and name == ARCHITECTURE:
            other = SpeculativeMethod.Eagle if reduced else SpeculativeMethod.Eagle3
    if other is not None:
        return f"it is a head of {other}, and the method is {method}; set method: {other}"
    if name not in forms:
        return f"architecture {shown(name)} is no {method} head that is built; only {', '.join(forms)} are"
    for field in REFUSED:
        if config.get(field):
            return f"{field}={shown(config[field])} of a head is not built"
    return None


def layers_of(method: SpeculativeMethod, config: Json) -> dict[str, Any]:
    """The config.json of the head's layers as a model of their own."""
    if method is SpeculativeMethod.Mtp:
        return {**config, "num_hidden_layers": 1}
    return {**config, "architectures": [ARCHITECTURE]}


def _mtp_not_built(config: Json) -> str | None:
    name, layers = str((config.get("architectures") or [config.get("model_type", "")])[0]), config.get(MTP_LAYERS)
    if name not in MTP:
        return f"MTP layers of {shown(name)} are not built; only those of {', '.join(MTP)} are"
    if layers != 1:
        return f"{MTP_LAYERS}={shown(layers)}: only checkpoints with 1 MTP layer are built"
    for field in ("use_sliding_window", "quantization_config"):
        if config.get(field):
            return f"{field} next to MTP layers is not built"
    return None
