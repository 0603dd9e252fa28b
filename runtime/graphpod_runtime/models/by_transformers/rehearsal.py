"""What a model of transformers does in a pass, seen before anything is captured, on its own weights.

Rows of a pass are tokens of several requests, in one line. So rows may see each other in attention alone, which knows
whose they are; and a row's position must be the one that the engine gives. Both are tried, not read off a name:

- NaN goes into one row, behind the embedding and in each result of attention: no other row may have it at the end;
- each row alone gives the queries, keys, values and states that it gives among others, at positions in no order;
- rows in another order give the same: by as many rows at once, so that 16 bits round no other way and what positions of
  little weight do is seen;
- a short text gives the logits of transformers' own attention, by ours over paged keys and values.

What a graph could not hold is noted: a read on the host, a shape that depends on values, a copy between devices.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from graphpod_runtime.base.host_reads import HOST_READS
from graphpod_runtime.models.by_transformers import interface
from graphpod_runtime.models.by_transformers.attention_call import AttentionCall
from graphpod_runtime.models.by_transformers.masks import Masks
from graphpod_runtime.models.by_transformers.parts import Parts, own_rows
from graphpod_runtime.models.by_transformers.unsupported import FamilyUnsupported, Lack

ROWS = 6
"""Of a rehearsed pass."""
EXACT, ROUNDED = 1e-4, 5e-2
"""Of the largest element: what rows may differ by the number of rows next to them, in float32 and in 16 bits."""
COPIED = {"aten::_to_copy": 0, "aten::copy_": 1}
"""Operators that move a tensor to another device, by the argument that is moved."""


@dataclass(slots=True)
class Rehearsal:
    """What passes of a model have shown."""

    parts: Parts
    masks: Masks
    vocab: int
    exact: bool = True
    """Whether the model computes in float32."""
    calls: list[AttentionCall] = field(default_factory=list)
    """Of attention, in the order of a pass."""
    uncapturable: str = ""
    """What a graph cannot hold of its code; empty: nothing that was seen."""


class _Traffic:
    """Attention of a rehearsed pass: each row attends to itself alone. Keeps what crosses it."""

    def __init__(self, spoilt: tuple[int, int] | None = None) -> None:
        """`spoilt`: the number of a call, and a row whose result is NaN there."""
        self.calls: list[AttentionCall] = []
        self.crossing: list[Tensor] = []
        self._spoilt = spoilt

    def __call__(self, number: int, call: AttentionCall, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.calls.append(call)
        self.crossing += (q[0].transpose(0, 1), k[0].transpose(0, 1), v[0].transpose(0, 1))
        result = own_rows(number, call, q, k, v)
        if self._spoilt is not None and self._spoilt[0] == number:
            result[:, self._spoilt[1]] = torch.nan
        return result


def rehearsed(parts: Parts, vocab: int, positions: int, device: torch.device) -> Rehearsal:
    """`parts` of a model for tokens below `vocab` and sequences of up to `positions`. FamilyUnsupported names what
    this engine cannot compute."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocab, (ROWS,), generator=generator).to(device)
    last = positions - 1
    at = torch.tensor([min(last, row) for row in (5, 0, last, 3, 4, 0)], device=device)
    seen = Rehearsal(parts, Masks(device, positions), vocab)
    _run(seen, tokens, at, _Traffic())
    seen.masks.learnt = True
    whole = _Traffic()
    noted: list[str] = []
    with watched(noted.append):
        hidden = _run(seen, tokens, at, whole)
    seen.uncapturable = next(iter(noted), "")
    if not whole.calls:
        raise FamilyUnsupported(Lack.NoAttention, f"{_name(parts)} calls no attention through transformers' interface")
    seen.calls, seen.exact = whole.calls, hidden.dtype == torch.float32
    _rows_apart(seen, tokens, at)
    _in_another_order(seen, tokens, at, [*whole.crossing, hidden])
    for row in range(ROWS):
        alone = _Traffic()
        own = _run(seen, tokens[row : row + 1], at[row : row + 1], alone)
        pairs = [*zip(alone.crossing, whole.crossing, strict=True), (own, hidden)]
        for number, (one, all_rows) in enumerate(pairs):
            among = all_rows[row : row + 1]
            allowed = (EXACT if seen.exact else ROUNDED) * float(all_rows.abs().max())
            if not float((one - among).abs().max()) <= allowed:
                raise _moved(seen, number)
    return seen


def _in_another_order(seen: Rehearsal, tokens: Tensor, at: Tensor, wanted: list[Tensor]) -> None:
    """FamilyUnsupported unless rows give what is `wanted` of each when the last one comes first."""
    order, turned = torch.arange(ROWS - 1, -1, -1, device=at.device), _Traffic()
    hidden = _run(seen, tokens[order], at[order], turned)
    for number, (one, other) in enumerate(zip(wanted, [*turned.crossing, hidden], strict=True)):
        allowed = max(EXACT, torch.finfo(one.dtype).eps) * float(one.abs().max())
        if not float((one[order] - other).abs().max()) <= allowed:
            raise _moved(seen, number)


def _moved(seen: Rehearsal, number: int) -> FamilyUnsupported:
    """Of the tensor `number` of those that cross attention."""
    call = min(number // 3, len(seen.calls) - 1)
    return FamilyUnsupported(
        Lack.Positions,
        f"{_name(seen.parts)}: what a token gives to attention call {call} depends on the tokens next to it or on "
        "their positions, not on its own position alone",
    )


def _rows_apart(seen: Rehearsal, tokens: Tensor, at: Tensor) -> None:
    """FamilyUnsupported if NaN of one row reaches another, naming the first module that mixes them."""
    row = 2
    embedding: nn.Module = seen.parts.whole.get_input_embeddings()  # type: ignore[operator]
    spots: list[int | None] = [None, *range(len(seen.calls))]
    for call in spots:
        traffic = _Traffic(None if call is None else (call, row))
        mixing = _Mixing(seen.parts.decoder, row)
        with mixing.watching(), _spoiling(embedding if call is None else None, row):
            hidden = _run(seen, tokens, at, traffic)
        others = torch.cat((hidden[:row], hidden[row + 1 :]))
        if not bool(others.isfinite().all()):
            raise FamilyUnsupported(
                Lack.RowsMixed,
                f"{_name(seen.parts)}: tokens see each other outside of attention, in {mixing.first}; a state of a "
                "sequence other than keys and values is not built",
            )


class _Mixing:
    """Finds the innermost module that hands NaN of `row` on to other rows."""

    def __init__(self, root: nn.Module, row: int) -> None:
        self.first = type(root).__name__
        self._root, self._row, self._found = root, row, False

    @contextmanager
    def watching(self) -> Iterator[None]:
        handles = [
            module.register_forward_hook(self._hook(name or type(self._root).__name__, type(module).__name__))
            for name, module in self._root.named_modules()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, name: str, kind: str) -> Any:
        def look(module: nn.Module, arguments: Any, result: Any) -> None:
            first = result[0] if isinstance(result, (tuple, list)) and result else result
            if self._found or not isinstance(first, Tensor) or first.dim() != 3 or first.shape[:2] != (1, ROWS):
                return
            spoilt = first[0].isnan().flatten(1).any(1)
            if bool(spoilt[: self._row].any() | spoilt[self._row + 1 :].any()):
                self._found, self.first = True, f"{name} ({kind})"

        return look


@contextmanager
def _spoiling(embedding: nn.Module | None, row: int) -> Iterator[None]:
    """What `embedding` gives for a row is NaN."""
    if embedding is None:
        yield
        return

    def spoil(module: nn.Module, arguments: Any, result: Tensor) -> Tensor:
        result = result.clone()
        result[..., row, :] = torch.nan
        return result

    handle = embedding.register_forward_hook(spoil)
    try:
        yield
    finally:
        handle.remove()


def _run(seen: Rehearsal, tokens: Tensor, positions: Tensor, traffic: _Traffic) -> Tensor:
    with torch.no_grad(), interface.passing(seen.masks, traffic):
        return seen.parts.hidden(tokens, positions)


def _name(parts: Parts) -> str:
    return type(parts.whole).__name__


@contextmanager
def watched(note: Callable[[str], None]) -> Iterator[None]:
    """Calls `note` with what a graph could not hold."""

    class Reads(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in HOST_READS:
                note(f"reads a tensor on the host (Tensor.{HOST_READS[func]})")
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if torch.Tag.data_dependent_output in func.tags:
                note(f"reads values on the host ({func._schema.name})")
            masked = func._schema.name != "aten::index" or any(
                index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
            )
            if torch.Tag.dynamic_output_shape in func.tags and masked:
                note(f"calls {func._schema.name}, whose result's shape depends on values")
            result = func(*args, **(kwargs or {}))
            moved = args[COPIED[func._schema.name]] if func._schema.name in COPIED else result
            # A single number fills its place, which a graph can hold.
            if moved is not result and moved.device != result.device and moved.dim() > 0:
                note(f"copies a tensor from {moved.device.type} to {result.device.type} ({func._schema.name})")
            return result

    with Reads(), Operators():
        yield
