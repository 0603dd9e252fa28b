"""Rotary positions whose frequencies depend on the longest sequence of a pass (dynamic, longrope).

Rows of a pass are of several sequences, so none of them may change the frequencies of another. Up to the length of
pretraining they do not change at all, and no sequence here is longer: modules take them as they are.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn


def grows(kind: str) -> bool:
    """Whether frequencies of this type depend on the longest sequence of a pass."""
    return "dynamic" in kind or kind == "longrope"


class Rotary:
    """The modules of `whole` whose frequencies would grow; from now on they do not."""

    def __init__(self, whole: nn.Module) -> None:
        self._modules: list[tuple[Any, Any]] = []
        """Each, and its types as the model has them."""
        for module in whole.modules():
            kinds = getattr(module, "rope_type", None)
            if kinds != (settled := _settled(kinds)):
                self._modules.append((module, kinds))
                module.rope_type = settled  # type: ignore[assignment]

    @contextmanager
    def growing(self) -> Iterator[None]:
        """The modules do what transformers has them do."""
        for module, kinds in self._modules:
            module.rope_type = kinds
        try:
            yield
        finally:
            for module, kinds in self._modules:
                module.rope_type = _settled(kinds)


def _settled(kinds: Any) -> Any:
    """`kinds`, of a module or of its types of layers, without those that grow."""
    if isinstance(kinds, Mapping):
        return {layers: _settled(kind) for layers, kind in kinds.items()}
    return "default" if isinstance(kinds, str) and grows(kinds) else kinds
