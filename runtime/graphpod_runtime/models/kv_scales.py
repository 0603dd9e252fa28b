"""Scales of an FP8 KV cache, gathered while weights are read. A cache in 16 bits leaves them aside."""

import math
import re
from pathlib import Path

from torch import Tensor

from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.shapes import KvScale

NAME = re.compile(r"model\.layers\.(\d+)\.self_attn\.(?:k_proj\.(?=k_)|v_proj\.(?=v_))?(k|v|kv)_scale")
"""As checkpoints have them: of a layer's keys, of its values, or (older ones) of both; at the attention, or at the
projection that makes what is scaled."""

HALVES = {"k": ("key",), "v": ("value",), "kv": ("key", "value")}


class KvScales:
    """Those of `layers` of a model, from its `first` on; 1 where a checkpoint brings none."""

    def __init__(self, layers: int, first: int = 0) -> None:
        self._first = first
        self._given: list[dict[str, float]] = [{} for _ in range(layers)]

    def take(self, file: Path, name: str, tensor: Tensor) -> bool:
        """Whether the tensor `name` is one of them; ModelInvalid for one that no cache here can use."""
        if not self.has(name):
            return False
        match = NAME.fullmatch(name)
        assert match is not None
        layer = int(match[1]) - self._first
        if tensor.numel() != 1 or not 0 < (scale := float(tensor)) < math.inf:
            raise ModelInvalid(f"{file}: {name} is {tensor.tolist()}; only one positive number for a layer is built")
        self._given[layer] |= dict.fromkeys(HALVES[match[2]], scale)
        return True

    def has(self, name: str) -> bool:
        """Whether the tensor `name` is one of them."""
        match = NAME.fullmatch(name)
        return match is not None and 0 <= int(match[1]) - self._first < len(self._given)

    def by_layer(self) -> tuple[KvScale, ...]:
        """All of them, once all tensors are read."""
        return tuple(KvScale(**given) for given in self._given)

    def missing(self) -> tuple[int, ...]:
        """Layers without a scale for their keys, or for their values."""
        return tuple(layer for layer, given in enumerate(self._given) if len(given) < len(HALVES["kv"]))


def warning_of(missing: tuple[int, ...], layers: int) -> str | None:
    """What a user of an FP8 cache should know when a checkpoint gives no scale for the layers `missing`."""
    if not missing:
        return None
    return (
        f"the checkpoint has no FP8 KV scales for {len(missing)} of {layers} layers (first layer {missing[0]}): they "
        "are 1, so that keys and values beyond ±448 are cut off and small ones are rounded coarsely. Add k_scale and "
        "v_scale to the checkpoint by calibrating it, or set spec.engine.kvCacheDtype to Auto"
    )
