"""What a checkpoint's quantised weights are, in words: of forms that the engine does not have, so that a refusal names
what was found and not a field alone.

Forms and fields as transformers 5.23, llm-compressor, AutoAWQ, GPTQModel and ModelOpt write them (2026-11).
"""

from collections.abc import Callable, Mapping
from typing import Any

from graphpod_policy.model.shown import cut

INSTEAD = "take the model's 16-bit weights, or FP8 ones of quant_method fp8 or compressed-tensors"
"""What to do about any of them."""

Json = Mapping[str, Any]


def _integers(by: str, more: Callable[[Json], str] = lambda config: "") -> Callable[[Json], str]:
    """INT4 in groups, by a method."""

    def words(config: Json) -> str:
        group = config.get("group_size", config.get("q_group_size"))
        groups = "" if group in (None, -1) else f", groups of {_shown(group)}"
        return f"INT{_shown(config.get('bits', config.get('w_bit', 4)))} by {by}{groups}{more(config)}"

    return words


def _bitsandbytes(config: Json) -> str:
    if config.get("load_in_8bit") or config.get("_load_in_8bit"):
        return "INT8 by bitsandbytes"
    return f"4 bits ({_shown(config.get('bnb_4bit_quant_type', 'fp4'))}) by bitsandbytes"


def _compressed_tensors(config: Json) -> str:
    groups, kind = config.get("config_groups"), _shown(config.get("format"))
    group: Any = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights: Any = group.get("weights") if isinstance(group, Mapping) else None
    bits = _shown(weights.get("num_bits")) if isinstance(weights, Mapping) else "?"
    words = COMPRESSED[kind].format(bits=bits) if kind in COMPRESSED else f"format {kind!r}"
    return f"{words} by compressed-tensors"


def _of_version(config: Json) -> str:
    version = config.get("version")
    return f", version {_shown(version)}" if version else ""


def _act_order(config: Json) -> str:
    return ", with act order" if config.get("desc_act") else ""


COMPRESSED = {
    "pack-quantized": "INT{bits}, packed",
    "int-quantized": "INT{bits}, weights and activations,",
    "naive-quantized": "{bits} bits",
    "float-quantized": "FP{bits}",
    "nvfp4-pack-quantized": "NVFP4",
    "mxfp4-pack-quantized": "MXFP4",
    "mxfp8-quantized": "MXFP8",
    "marlin-24": "INT{bits} with every other weight left out (2:4)",
    "mixed-precision": "several forms",
}
"""By `format`."""

FORMS: dict[str, Callable[[Json], str]] = {
    "awq": _integers("AWQ", _of_version),
    "gptq": _integers("GPTQ", _act_order),
    "gptq_marlin": _integers("GPTQ (Marlin)", _act_order),
    "auto-round": _integers("AutoRound"),
    "intel/auto-round": _integers("AutoRound"),
    "hqq": lambda config: "a few bits by HQQ",
    "quanto": lambda config: f"{_shown(config.get('weights', 'int8'))} by quanto",
    "aqlm": lambda config: "codebooks by AQLM",
    "vptq": lambda config: "codebooks by VPTQ",
    "higgs": lambda config: "a few bits by HIGGS",
    "spqr": lambda config: "a few bits by SpQR",
    "bitnet": lambda config: "ternary numbers by BitNet",
    "eetq": lambda config: "INT8 by EETQ",
    "torchao": lambda config: "a form of torchao",
    "quark": lambda config: "a form of Quark",
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "mxfp4": lambda config: "MXFP4",
    "mxfp8": lambda config: "MXFP8",
    "fp8": lambda config: "FP8",
    "fbgemm_fp8": lambda config: "FP8 by FBGEMM",
    "modelopt": lambda config: f"{_shown(config.get('quant_algo', 'FP8'))} by ModelOpt",
    "modelopt_fp4": lambda config: "NVFP4 by ModelOpt",
}
"""By `quant_method`."""

TENSORS = {
    ".qweight": "INT4 or INT8 by GPTQ or AWQ",
    ".qzeros": "INT4 or INT8 by GPTQ or AWQ",
    ".g_idx": "INT4 or INT8 by GPTQ",
    ".scales": "INT4 or INT8 by GPTQ or AWQ",
    ".weight_packed": "INT4 or FP4 by compressed-tensors",
    ".weight_shape": "INT4 by compressed-tensors",
    ".weight_zero_point": "INT4 or INT8 by compressed-tensors",
    ".absmax": "4 bits by bitsandbytes",
    ".SCB": "INT8 by bitsandbytes",
    ".weight_scale": "FP8 or FP4",
    ".weight_scale_inv": "FP8 in blocks",
    ".weight_scale_2": "NVFP4 by ModelOpt",
    ".input_scale": "FP8 or FP4",
    "_blocks": "MXFP4",
}
"""By the end of a tensor's name that plain weights do not have."""


def form_of(config: object) -> str:
    """What `quantization_config` says that the weights are; whatever stands there."""
    if not isinstance(config, Mapping):
        return f"an unknown form ({_shown(config)})"
    method = config.get("quant_method")
    words = FORMS.get(method) if isinstance(method, str) else None
    return f"an unknown form ({_shown(method)})" if words is None else words(config)


def form_by_tensor(name: str) -> str | None:
    """What the checkpoint's weights are by one of its tensors; None for what plain weights have, too."""
    return next((form for ending, form in TENSORS.items() if name.endswith(ending)), None)


def _shown(value: object) -> str:
    return cut(str(value))
