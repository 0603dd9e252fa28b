"""How a checkpoint holds its weights in FP8, read from `quantization_config` of config.json.

Two formats are read. `fp8`, as DeepSeek and Qwen publish it: blocks of 128 × 128 with `weight_scale_inv`, or one scale
for each matrix. `compressed-tensors`, as llm-compressor writes it: one scale for each matrix, for each output channel,
or for blocks. What else a checkpoint may be is refused by the name that it gives itself.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from graphpod_policy.model.name_pattern import may_backtrack
from graphpod_policy.model.shown import shown
from graphpod_policy.model.weight_form import INSTEAD, form_of

BLOCK = 128
"""Rows and columns of a block: the only size that is built."""
PARTS: tuple[tuple[str, ...], ...] = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)
"""Matrices of a layer that may be in FP8. Those of one row are one matrix in the engine."""
MOST_IGNORED, LONGEST_IGNORED = 4096, 512
"""Entries of a list of what stays as it is, and characters of each."""
MOST_PATTERNS = 64
"""Of these entries, regular expressions: each is tried on every matrix."""
PREFIXES = ("model.", "language_model.model.", "model.language_model.")
"""What names of layers begin with; the last two are those of models that see images."""


class Granularity(StrEnum):
    """What shares a scale of the weights."""

    Tensor = "Tensor"
    Channel = "Channel"
    Blocks = "Blocks"


class SchemeNotBuilt(ValueError):
    """A way to hold weights that the engine does not have; the message names field and value."""


@dataclass(frozen=True, slots=True)
class Fp8Scheme:
    """`static`: the checkpoint has scales of activations, too. `online`: the checkpoint's weights are plain, and
    become FP8 when they are loaded."""

    granularity: Granularity
    static: bool = False
    scale: str = "weight_scale"
    """What the name of a scale has in the place of `weight`."""
    ignored: tuple[str, ...] = ()
    online: bool = False

    def covers(self, layer: int, part: str) -> bool:
        """Whether the matrix `part` of `layer` is in FP8."""
        tail = f"layers.{layer}.{part}"
        return not any(_matches(entry, prefix + tail) for entry in self.ignored for prefix in PREFIXES)

    def mixed(self, layers: int) -> str | None:
        """The first matrix that would be in FP8 in part; None where there is none."""
        if not self.ignored:
            return None
        for layer in range(layers):
            for parts in PARTS:
                if len({self.covers(layer, part) for part in parts}) > 1:
                    return f"layers.{layer}: {', '.join(parts)}"
        return None

    def weights(self, layers: int, sizes: Mapping[str, int]) -> int:
        """Weights in FP8, of a model whose layers have matrices of `sizes` elements by part."""
        return sum(sizes[part] for layer in range(layers) for part in sizes if self.covers(layer, part))

    def in_blocks(self, layers: int) -> tuple[str, ...]:
        """Matrices that have a scale for each block, in any of so many layers."""
        if self.granularity is not Granularity.Blocks:
            return ()
        return tuple(part for parts in PARTS for part in parts if any(self.covers(at, part) for at in range(layers)))

    def __str__(self) -> str:
        """For people: what shares a scale, and how activations get theirs."""
        words = {
            Granularity.Tensor: "FP8, a scale for each matrix",
            Granularity.Channel: "FP8, a scale for each output channel",
            Granularity.Blocks: f"FP8, a scale for each block of {BLOCK} × {BLOCK}",
        }
        origin = ", quantized when loaded" if self.online else ""
        return words[self.granularity] + (", static activation scales" if self.static else "") + origin


ONLINE = Fp8Scheme(Granularity.Channel, online=True)
"""What `spec.engine.quantization: Fp8` makes of plain weights."""


def scheme_of(config: Mapping[str, Any] | None) -> Fp8Scheme | None:
    """What `quantization_config` says of the weights; None for plain ones. SchemeNotBuilt for a format that the engine
    does not have, with the form in words and what to take instead.
    """
    if not config:
        return None
    try:
        return _read(config)
    except SchemeNotBuilt as error:
        raise SchemeNotBuilt(f"{error} (the weights are {form_of(config)}); {INSTEAD}") from error


def _read(config: Mapping[str, Any]) -> Fp8Scheme | None:
    if not isinstance(config, Mapping):
        raise SchemeNotBuilt(f"quantization_config is {shown(config)}, not an object")
    method = config.get("quant_method")
    if method == "fp8":
        return _fp8(config)
    if method == "compressed-tensors":
        return _compressed_tensors(config)
    # A scheme for the KV cache alone leaves the weights plain numbers.
    if config.get("kv_cache_scheme") and not config.get("config_groups"):
        return None
    raise SchemeNotBuilt(f"quantization_config of {shown(method)} is not built")


def _fp8(config: Mapping[str, Any]) -> Fp8Scheme:
    _only("fmt", config.get("fmt") or "e4m3", ("e4m3", "float8_e4m3fn"))
    _only("scale_fmt", config.get("scale_fmt") or "float", ("float",))
    activations = config.get("activation_scheme") or "dynamic"
    _only("activation_scheme", activations, ("dynamic", "static"))
    ignored = _ignored((*_list(config, "modules_to_not_convert"), *_list(config, "ignored_layers")))
    if (block := config.get("weight_block_size")) is None:
        return Fp8Scheme(Granularity.Tensor, activations == "static", ignored=ignored)
    _only("weight_block_size", block, ([BLOCK, BLOCK],))
    _only("activation_scheme", activations, ("dynamic",))
    return Fp8Scheme(Granularity.Blocks, scale="weight_scale_inv", ignored=ignored)


def _compressed_tensors(config: Mapping[str, Any]) -> Fp8Scheme | None:
    groups = config.get("config_groups")
    if not groups:
        return None  # a scheme of the KV cache alone
    _only("format", config.get("format"), ("float-quantized",))
    if not isinstance(groups, Mapping):
        raise SchemeNotBuilt(f"quantization_config.config_groups is {shown(groups)}, not an object")
    if len(groups) != 1:
        raise SchemeNotBuilt(f"quantization_config with {len(groups)} config_groups is not built; one is")
    (group,) = groups.values()
    if not isinstance(group, Mapping):
        raise SchemeNotBuilt(f"quantization_config: a config group is {shown(group)}, not an object")
    _only("targets", group.get("targets"), (["Linear"],))
    _only("output_activations", group.get("output_activations"), (None,))
    weights, inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(inputs, Mapping) or not isinstance(weights, Mapping):
        raise SchemeNotBuilt("quantization_config without input_activations and weights is not built (weight-only)")
    for name, half in (("weights", weights), ("input_activations", inputs)):
        _only(f"{name}.type", half.get("type"), ("float",))
        _only(f"{name}.num_bits", half.get("num_bits"), (8,))
        _only(f"{name}.symmetric", half.get("symmetric", True), (True,))
    _only("weights.dynamic", weights.get("dynamic") or False, (False,))
    _only("weights.strategy", weights.get("strategy"), ("tensor", "channel", "block"))
    static = not inputs.get("dynamic")
    ignored = _ignored(_list(config, "ignore"))
    if weights["strategy"] == "block":
        _only("weights.block_structure", weights.get("block_structure"), ([BLOCK, BLOCK], f"{BLOCK}x{BLOCK}"))
        _only("input_activations.dynamic", not static, (True,))
        _only("input_activations.strategy", inputs.get("strategy"), ("group",))
        _only("input_activations.group_size", inputs.get("group_size"), (BLOCK,))
        return Fp8Scheme(Granularity.Blocks, ignored=ignored)
    _only("input_activations.strategy", inputs.get("strategy"), ("tensor",) if static else ("token", "tensor"))
    granularity = Granularity.Channel if weights["strategy"] == "channel" else Granularity.Tensor
    return Fp8Scheme(granularity, static, ignored=ignored)


def _only(field: str, value: object, built: Sequence[object]) -> None:
    if value not in built:
        words = " or ".join(map(repr, built))
        raise SchemeNotBuilt(f"quantization_config.{field} {shown(value)} is not built; {words} is")


def _list(config: Mapping[str, Any], field: str) -> Sequence[Any]:
    value = config.get(field) or ()
    if not isinstance(value, list | tuple):
        raise SchemeNotBuilt(f"quantization_config.{field} is {shown(value)}, not a list of names")
    return value


def _ignored(entries: Iterable[object]) -> tuple[str, ...]:
    """The entries that can concern a layer, checked."""
    found = tuple(_entries(entries))
    if sum(entry.startswith("re:") for entry in found) > MOST_PATTERNS:
        raise SchemeNotBuilt(f"quantization_config ignores by more than {MOST_PATTERNS} patterns; name the matrices")
    return found


def _entries(entries: Iterable[object]) -> Iterator[str]:
    for number, entry in enumerate(entries):
        if number >= MOST_IGNORED or not isinstance(entry, str) or len(entry) > LONGEST_IGNORED:
            raise SchemeNotBuilt(
                f"quantization_config ignores {shown(entry)}: at most {MOST_IGNORED} names of {LONGEST_IGNORED} "
                "characters are read"
            )
        if entry.startswith("re:"):
            try:
                re.compile(entry[3:])
            except re.error as error:
                raise SchemeNotBuilt(f"quantization_config ignores {entry!r}, which is no pattern ({error})") from error
            if slow := may_backtrack(entry[3:]):
                what = f"quantization_config ignores {entry!r}, which may take very long to match: {slow}"
                raise SchemeNotBuilt(f"{what}; name the matrices")
        elif entry in ("lm_head", "model.lm_head", "language_model.lm_head"):
            continue
        yield entry


def _matches(entry: str, name: str) -> bool:
    if entry.startswith("re:"):
        return re.match(entry[3:], name) is not None
    return name == entry or name.startswith(f"{entry}.") or name.endswith(f".{entry}") or f".{entry}." in name
