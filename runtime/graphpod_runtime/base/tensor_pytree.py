"""Nested values whose leaves are tensors of rows: tuples, lists, dicts and dataclasses, in any nesting."""

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree


class Leaf(Enum):
    """Stands for a tensor among the leaves of a value."""

    Tensor = "tensor"


@dataclass(frozen=True, slots=True)
class Shape:
    """What is fixed in a nested value: its nesting, and every leaf that is not a tensor."""

    spec: pytree.TreeSpec
    others: tuple[Any, ...]
    """One for each leaf, Leaf.Tensor for a tensor. None is a leaf of its own."""

    def __str__(self) -> str:
        others = [other for other in self.others if other is not Leaf.Tensor]
        return " ".join(str(self.spec).split()) + f" with {others}"

    def filled(self, tensors: list[Tensor]) -> Any:
        """The value with `tensors` as its tensors, in order."""
        left = iter(tensors)
        leaves = [next(left) if other is Leaf.Tensor else other for other in self.others]
        return pytree.tree_unflatten(leaves, self.spec)


def leaves_of(value: Any) -> tuple[list[Tensor], Shape]:
    """The tensors of `value` in order, and all else."""
    _register(value)
    leaves, spec = pytree.tree_flatten(value)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    return tensors, Shape(spec, tuple(Leaf.Tensor if isinstance(leaf, Tensor) else leaf for leaf in leaves))


def mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """`value` with every tensor replaced by what `function` makes of it."""
    tensors, shape = leaves_of(value)
    return shape.filled([function(tensor) for tensor in tensors])


def _register(value: Any) -> None:
    """Makes torch take the dataclasses in `value` apart as it does tuples."""
    if isinstance(value, dict):
        for entry in value.values():
            _register(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            _register(entry)
    elif is_dataclass(value) and not isinstance(value, type):
        if type(value) not in pytree.SUPPORTED_NODES:
            pytree.register_dataclass(type(value))
        for name in value.__dataclass_fields__:
            _register(getattr(value, name))
