"""How a decoder of transformers takes the positions of its tokens.

Three ways are known, and tried on the model rather than read off a name:

- `position_ids`, counted from 0;
- `position_ids` that begin later and leave padding tokens out (RoBERTa), which the model counts itself where it is
  given none: what its embedding of positions is then asked for shows the difference;
- none: it counts them from the length of its cache.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Run = Callable[..., Any]
"""The decoder, with arguments of its own."""


class Positions:
    """Those of `decoder`. `learn` first."""

    def __init__(self, decoder: nn.Module) -> None:
        self._decoder = decoder
        taken = inspect.signature(decoder.forward).parameters
        handed_on = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())
        self._named = "position_ids" in taken or (handed_on and "past_key_values" not in taken)
        """Whether it takes them by name, itself or for a part of it."""
        self._counted = {"past_key_values", "attention_mask"} <= taken.keys()
        """Whether it counts them from the length of its cache."""
        self._plain = {"use_cache": False} if "use_cache" in taken else {}
        self.first = 0
        """Position of the first token of a sequence; the model has as many fewer for tokens."""
        self.padding: tuple[int, int] | None = None
        """A token that is no part of the count, and the position that it has."""

    def learn(self, run: Run) -> None:
        """Sees where the model's own count begins, and which token it leaves out. `run` calls the decoder."""
        if not self._named:
            return
        pads = {int(index) for module in self._tables() if (index := module.padding_idx) is not None}
        plain = next(token for token in range(len(pads) + 1) if token not in pads)
        own = self._asked(run, (plain, plain, plain), {})
        given = self._asked(run, (plain, plain, plain), {"position_ids": torch.arange(3)[None]})
        for table in own.keys() & given.keys():
            if own[table] == given[table]:
                continue
            base = given[table][0]
            self.first = own[table][0] - base
            for pad in sorted(pads):
                at = self._asked(run, (plain, pad, plain), {}).get(table, own[table])
                if at != own[table]:
                    self.padding = pad, at[1] - base
            return

    @contextmanager
    def arguments(self, tokens: Tensor, positions: Tensor) -> Iterator[Mapping[str, Any]]:
        """What the decoder is called with, and while it runs, for `tokens` [rows] at `positions` [rows]."""
        if self._named:
            at = positions + self.first if self.first else positions
            if self.padding is not None:
                at = torch.where(tokens == self.padding[0], self.padding[1], at)
            yield self._plain | {"position_ids": at[None]}
        elif self._counted:
            ones = torch.ones((1, positions.shape[0]), dtype=torch.bool, device=positions.device)
            with _CountedFrom():
                yield self._plain | {"past_key_values": _Behind(positions), "attention_mask": ones}
        else:
            yield self._plain

    def _tables(self) -> list[nn.Embedding]:
        return [module for module in self._decoder.modules() if isinstance(module, nn.Embedding)]

    def _asked(self, run: Run, tokens: tuple[int, ...], given: Mapping[str, Any]) -> dict[nn.Module, list[int]]:
        """What each table was asked for, once, for as many rows as tokens."""
        asked: dict[nn.Module, list[int]] = {}

        def note(table: nn.Module, arguments: tuple[Any, ...]) -> None:
            if arguments and isinstance(arguments[0], Tensor) and arguments[0].numel() == len(tokens):
                asked.setdefault(table, arguments[0].flatten().tolist())

        handles = [table.register_forward_pre_hook(note) for table in self._tables()]
        try:
            device = next(self._decoder.parameters()).device
            given = {name: value.to(device) for name, value in given.items()}
            run(input_ids=torch.tensor([tokens], device=device), **self._plain, **given)
        finally:
            for handle in handles:
                handle.remove()
        return asked


class _Length(int):
    """Of a cache that holds nothing, 0 where its size matters; as a summand it is another for each token, `each`
    [rows]."""

    each: Tensor

    @classmethod
    def of(cls, each: Tensor, value: int = 0) -> "_Length":
        length = cls(value)
        length.each = each
        return length

    def __add__(self, other: int) -> Any:
        return _Length.of(self.each + other, int(self) + other) if isinstance(other, int) else NotImplemented

    __radd__ = __add__


class _CountedFrom(TorchFunctionMode):
    """What torch does with a length it does with that of each token; a range from a length is one step of each."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.arange and args and isinstance(args[0], _Length):
            each = args[0].each
            return each + torch.arange(each.shape[0], device=each.device)
        if func is not torch.arange and any(isinstance(arg, _Length) for arg in args):
            args = tuple(arg.each if isinstance(arg, _Length) else arg for arg in args)
        return func(*args, **(kwargs or {}))


class _Behind:
    """A cache that holds nothing, as long for each token as the engine says: token i counts its position from i."""

    is_compileable = False

    def __init__(self, positions: Tensor) -> None:
        self._length = _Length.of(positions - torch.arange(positions.shape[0], device=positions.device))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._length

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return query_length, 0

    def update(self, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return key, value
