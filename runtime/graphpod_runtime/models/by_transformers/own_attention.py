"""Attention that a module writes out: scores by one product, a softmax, and a second product.

Such a module does not call transformers' interface. While it runs, its scores are not computed: an object notes by what
they are multiplied and which mask is added, and the second product is our attention. An operator that this object does
not know refuses the model by name, as does a mask that is not transformers' interface's.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from graphpod_runtime.models.by_transformers.unsupported import FamilyUnsupported, Lack

Attended = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
"""(q, k, v of [1, heads, tokens, width], mask, scale) -> [1, tokens, heads, width]"""

PRODUCTS = frozenset({"matmul", "__matmul__", "bmm"})
SAME = frozenset({"to", "float", "half", "type", "type_as", "contiguous", "dropout", "view", "reshape"})
"""What leaves scores as they are: types, which our attention chooses, dropout, which is off, and other shapes of one
sequence's heads."""


class Scores:
    """Query · key of every pair of tokens, to be attended by."""

    def __init__(self, attended: Attended, q: Tensor, k: Tensor) -> None:
        """q [.., tokens, width] and k [.., width, tokens]."""
        self._attended, self._q, self._k = attended, q, k
        self.dtype, self.device = q.dtype, q.device
        self.shape = torch.Size((*q.shape[:-1], k.shape[-1]))
        self._scale, self._mask, self._normal = 1.0, None, False  # type: ignore[var-annotated]

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func)).strip("_").removesuffix("_")
        first, *rest = args
        if isinstance(first, Scores):
            return first._then(name, *rest)
        if name in ("add", "mul") and len(rest) == 1:
            return rest[0]._then(name, first)
        raise _unknown(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *rest, **_: self._then(name.removesuffix("_"), *rest)

    def __add__(self, other: Any) -> Any:
        return self._then("add", other)

    def __mul__(self, other: Any) -> Any:
        return self._then("mul", other)

    def __truediv__(self, other: Any) -> Any:
        return self._then("div", other)

    def __matmul__(self, other: Any) -> Any:
        # By torch, as modules write it otherwise: attention runs with the mode below aside.
        return torch.matmul(self, other)  # type: ignore[call-overload]

    __radd__, __rmul__ = __add__, __mul__

    def _then(self, name: str, *rest: Any) -> Any:
        other = rest[0] if rest else None
        if name in SAME:
            return self
        if name == "softmax":
            self._normal = True
        elif name in ("mul", "div", "truediv") and isinstance(other, (int, float)) and not self._normal:
            if self._mask is not None:
                raise _unknown(f"{name} behind its mask")
            self._scale *= other if name == "mul" else 1 / other
        elif name == "add" and isinstance(other, Tensor) and self._mask is None and not self._normal:
            self._mask = other
        elif name in ("matmul", "bmm") and self._normal and isinstance(other, Tensor):
            return self._result(other)
        else:
            raise _unknown(name)
        return self

    def _result(self, v: Tensor) -> Tensor:
        """[.., tokens, width], of as many dimensions as values have, and of their type: GPT-J's scores are wider."""
        whole = (each if each.dim() == 4 else each[None] for each in (self._q, self._k.mT, v))
        q, k, values = (each.to(v.dtype) for each in whole)
        made = self._attended(q, k, values, self._mask, self._scale).transpose(1, 2)
        return made if v.dim() == 4 else made[0]


def _unknown(name: str) -> FamilyUnsupported:
    return FamilyUnsupported(
        Lack.NoAttention, f"its own attention calls {name} of its scores, which this engine does not read"
    )


class OwnAttention(TorchFunctionMode):
    """Within, products of queries and keys are Scores."""

    def __init__(self, attended: Attended) -> None:
        super().__init__()
        self._attended = attended

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in PRODUCTS and len(args) == 2 and all(isinstance(each, Tensor) for each in args) and _scores(*args):
            return Scores(self._attended, *args)
        if any(isinstance(each, Scores) for each in args):
            # Not by `func`: attention may end a capture, whose own modes must not be aside then.
            return Scores.__torch_function__(func, types, args, kwargs)
        return func(*args, **(kwargs or {}))


def _scores(q: Tensor, k: Tensor) -> bool:
    """Whether these are heads of as many queries as keys."""
    return q.dim() == k.dim() and q.dim() > 2 and q.shape[-2] == k.shape[-1] and q.shape[-1] == k.shape[-2] > 1
