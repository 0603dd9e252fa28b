"""Masks of transformers' models: each is read once, and a marker goes to the layers in its place.

A mask is a function (batch, head, query, key) -> whether the query sees the key. Some hold a tensor of the model's
device, and take no others: they are asked on the host first, and then there. What it says of a late query shows
whether it is causal, and how far back it reaches. A layer that gets another tensor than a marker has made a mask of its
own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.models.by_transformers.unsupported import FamilyUnsupported, Lack

MaskFunction = Callable[[Any, Any, Any, Any], Tensor]


@dataclass(frozen=True, slots=True)
class Mask:
    """What a mask says: how many of the last keys a query sees, itself included, None: all. Or why it is not built."""

    window: int | None = None
    not_built: str = ""


class Masks:
    """The masks of one model, in the order in which a pass asks for them. A model may make some that no layer uses."""

    def __init__(self, device: torch.device, positions: int) -> None:
        """Of sequences of up to `positions` tokens."""
        self._device, self._positions = device, positions
        self._order: list[Mask] = []
        """Of a pass."""
        self._markers: dict[Mask, Tensor] = {}
        self.learnt = False
        """Whether a pass has shown all masks; later ones ask for the same."""

    @property
    def markers(self) -> tuple[Tensor, ...]:
        """All of them, for registration."""
        return tuple(self._markers.values())

    def marker(self, index: int, function: MaskFunction) -> Tensor:
        """Of the mask number `index` of a pass."""
        if self.learnt:
            return self._markers[self._order[index]]
        mask = mask_of(function, self._positions, (HOST, self._device))
        self._order.append(mask)
        if mask not in self._markers:
            self._markers[mask] = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=self._device)
        return self._markers[mask]

    def window(self, layer: str, given: Any) -> int | None:
        """Of a layer that attends by the mask that is `given`. FamilyUnsupported unless that is a marker, of a mask
        that is built."""
        if given is None:
            raise FamilyUnsupported(Lack.Mask, f"{layer} attends without a mask of transformers' mask interface")
        if isinstance(given, Tensor):
            for mask, marker in self._markers.items():
                if given.untyped_storage().data_ptr() == marker.untyped_storage().data_ptr():
                    if mask.not_built:
                        raise FamilyUnsupported(Lack.Mask, f"{layer} attends by a mask that {mask.not_built}")
                    return mask.window
        raise FamilyUnsupported(Lack.Mask, f"{layer} attends by a mask of its own, which is not built")


def mask_of(function: MaskFunction, positions: int, devices: Sequence[torch.device] = (HOST,)) -> Mask:
    """What `function` says of queries of sequences of up to `positions` tokens, a few late ones and some before, on the
    first of `devices` where it says anything."""
    failed: list[str] = []
    for device in dict.fromkeys(devices):
        try:
            return _mask_on(device, function, positions)
        except (RuntimeError, IndexError, TypeError) as error:
            failed.append(str(error))
    return Mask(not_built=f"depends on more than positions ({'; '.join(failed)})")


def _mask_on(device: torch.device, function: MaskFunction, positions: int) -> Mask:
    late = positions - 1
    window: int | None = None
    with device:
        for query in sorted({max(0, late - back) for back in (0, 1, 2, late // 2, late // 3)}, reverse=True):
            keys, zero = torch.arange(query + 8), torch.tensor(0)
            seen = function(zero, zero, torch.tensor(query), keys)
            at = torch.broadcast_to(seen, keys.shape).nonzero().flatten()
            if not at.numel() or int(at[-1]) != query:
                return Mask(not_built="is not causal")
            first = int(at[0])
            if at.numel() != query - first + 1:
                return Mask(not_built="has gaps")
            if query == late and first:
                window = query - first + 1
            if first != (0 if window is None else max(0, query - window + 1)):
                return Mask(not_built="cuts a text into chunks")
    return Mask(window)
