"""The self-check: before Ready, every graph is replayed on inputs unlike those of its capture and compared.

Twice over, on the rows that `graphpod_policy.cost.selfcheck` names.

(a) Bit for bit with the very code it captured, run eagerly on the same padded buffers: outputs and the
KV pages written. That finds a frozen value, a reused address, a break that does not write where it should.
(b) For some sizes, with plain eager on fresh unpadded tensors: that finds what (a) shares, such as a buffer that
is loaded wrongly. Rounding differs there, because kernels differ by row count and by the width of block tables; the
allowance is four times what padding of both does to plain eager, so it is measured, not chosen. Where activations are
rounded to FP8, a last place tips one now and then, and is an eighth of it off from there on. Where a router chooses
experts, it tips a choice of two that are close. Chance decides which runs have one; so there it is four times what
tipping some of them on purpose does, if that is more.

What is compiled rounds in its own way, which no padding explains. So plain eager runs the same compiled code as the
graphs, and `compiled/source_comparison.py` compares that with what it was compiled from. A compiled trace is not the
model's code, with whose mistakes it would stand on both sides: as it was traced, uncompiled, it too is compared with
the model's.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_policy import Phase
from graphpod_policy.cost.selfcheck import Comparison, comparisons
from graphpod_policy.features import MOST_TREE_TOKENS
from graphpod_runtime.base import tensor_pytree
from graphpod_runtime.base.errors import SelfCheckFailed
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.opaque_call import uncompiled
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pages import SCRATCH_PAGE, PageAllocator
from graphpod_runtime.distributed.agreement import ALONE, Ranks
from graphpod_runtime.engine.forward.inputs import inputs_of
from graphpod_runtime.engine.schedule.batch import Batch, Chunk, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence

ROUNDING_ALLOWANCE = 4
"""Times the difference that padding makes to plain eager."""


class Subject(Protocol):
    """The graphs of one phase and their uncaptured twins; results are views that the next call may overwrite."""

    @property
    def sizes(self) -> tuple[int, ...]: ...

    def replay(self, inputs: Inputs, size: int) -> tuple[Any, ...]: ...

    def uncaptured(self, inputs: Inputs, size: int) -> tuple[Any, ...]: ...

    @property
    def compiled_trace(self) -> bool: ...

    def traced(self, inputs: Inputs, size: int) -> tuple[Any, ...]: ...

    def eager(self, inputs: Inputs, size: int) -> tuple[Any, ...]: ...

    def poison_results(self, size: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Checker:
    """What checks of one phase share. `vocab` bounds the random tokens, lengths are at most `max_model_len`. The first
    row of a decode step has `long_row` tokens, or as many as there is room for, but no fewer than the others."""

    phase: Phase
    subject: Subject
    cache: KvCache
    vocab: int
    max_model_len: int
    long_row: int = 0
    tipped: Callable[[], AbstractContextManager[None]] | None = None
    """Within, the model computes with weights that tip activations or choices; None: it rounds none to FP8, and has no
    router."""
    trees: bool = False
    """Rows of a decode step may be kept from seeing some tokens in front of them."""
    ranks: Ranks = ALONE
    """All run the same passes, and none acts on what it finds before it knows what the others have found."""

    def sizes(self) -> Iterator[int]:
        """Checks every graph, yielding each size that passed. SelfCheckFailed names the first bad one."""
        for size, each in groupby(comparisons(self.subject.sizes), key=lambda comparison: comparison.size):
            for comparison in each:
                self._check(comparison)
            yield size

    def _check(self, comparison: Comparison) -> None:
        """Replays a graph, for the comparisons that are asked for."""
        size = comparison.size
        scene = self._scene(comparison.count, seed=comparison.count)
        where = f"{self.phase} size {size} with {scene.inputs.count} rows"
        scene.reset()
        self.subject.poison_results(size)
        replayed = _copies(self.subject.replay(scene.inputs, size))
        written = self.cache.take(scene.pages)
        if comparison.uncaptured:
            scene.reset()
            expected = self.subject.uncaptured(scene.inputs, size)
            with self.ranks.agreed():
                _same_bits(where, replayed, _copies(expected))
                if not self.cache.holds(scene.pages, written):
                    raise SelfCheckFailed(
                        f"{where}: the replay wrote other KV pages or values than the uncaptured code"
                    )
        del written
        if comparison.eager:
            self._against(where, scene, size, replayed, self.subject.traced)
        if comparison.eager and self.subject.compiled_trace:
            scene.reset()
            with uncompiled():
                traced = _copies(self.subject.traced(scene.inputs, scene.inputs.count))
                self._against(f"{where}, as it was traced", scene, size, traced, self.subject.eager)

    def _against(
        self,
        where: str,
        scene: "_Scene",
        size: int,
        replayed: tuple[Tensor, ...],
        eager: Callable[[Inputs, int], tuple[Any, ...]],
    ) -> None:
        """SelfCheckFailed when `replayed` is further from plain `eager` than padding moves that."""
        count = scene.inputs.count
        scene.reset()
        plain = _copies(eager(scene.inputs, count))
        scene.reset()
        others = [_copies(eager(self._padded(scene.inputs), max(size, count + 1)))]
        if self.tipped is not None:
            scene.reset()
            with self.tipped():
                others.append(_copies(eager(scene.inputs, count)))
        allowances = [
            ROUNDING_ALLOWANCE * max(_furthest(wanted, other[index]) for other in others)
            for index, wanted in enumerate(plain)
        ]
        with self.ranks.agreed():
            self._judge(where, replayed, plain, allowances)

    def _judge(
        self, where: str, replayed: tuple[Tensor, ...], plain: tuple[Tensor, ...], allowances: list[float]
    ) -> None:
        # A step's second result is the greedy choice made from the first one.
        certain = allowances[0]
        for index, (got, wanted, allowed) in enumerate(zip(replayed, plain, allowances, strict=True)):
            if self.phase is not Phase.Decode or index != 1:
                difference = _furthest(got, wanted)
                if not difference <= allowed:
                    raise SelfCheckFailed(
                        f"{where}: differs from plain eager by {difference:.3g}; padding alone explains {allowed:.3g}"
                    )
                continue
            logits = plain[0].float()
            gap = logits.gather(1, wanted[:, None]) - logits.gather(1, got.clamp(0, self.vocab - 1)[:, None])
            if not bool((gap <= 2 * certain).all()):
                raise SelfCheckFailed(f"{where}: the greedy token is not the most likely one of plain eager")

    def _padded(self, inputs: Inputs) -> Inputs:
        """`inputs` with block tables as wide as a captured step's, whose attention may run in another shape for it."""
        tables = inputs.tables
        width = -(-self.max_model_len // self.cache.page_size)
        wide = functional.pad(tables, (0, max(0, width - tables.shape[1])), value=SCRATCH_PAGE)
        return replace(inputs, tables=wide)

    def _scene(self, count: int, seed: int) -> "_Scene":
        """`count` rows (fewer when the cache is small) in sequences that own pages and have a past."""
        generator = torch.Generator().manual_seed(1_000_003 + seed)
        allocator = PageAllocator(self.cache.pages)
        batch = (self._decode if self.phase is Phase.Decode else self._prefill)(count, allocator, generator)
        inputs = inputs_of(batch, self.cache.page_size, self.cache.device)
        if self.trees and self.phase is Phase.Decode:
            # A row sees itself.
            drawn = torch.randint(1 << MOST_TREE_TOKENS, (inputs.count,), generator=generator) << 1
            inputs = replace(inputs, hidden=drawn.to(self.cache.device))
        return _Scene(inputs, self.cache, seed)

    def _decode(self, count: int, allocator: PageAllocator, generator: torch.Generator) -> Batch:
        """Sequences of different lengths, up to a few pages each; the first is the longest, so that every graph meets a
        past of more than one page where the cache has room for one, and of several parts where attention has those."""
        count, page_size = min(count, allocator.available), self.cache.page_size
        longest = min(self.max_model_len, min(4, allocator.available // count) * page_size)
        room = (allocator.available - (count - 1) * -(-longest // page_size)) * page_size
        first = max(longest, min(self.long_row, self.max_model_len, room))
        lengths = [first, *torch.randint(1, longest + 1, (count - 1,), generator=generator).tolist()]
        return DecodeBatch(tuple(self._sequence(length, allocator, generator) for length in lengths))

    def _prefill(self, count: int, allocator: PageAllocator, generator: torch.Generator) -> Batch:
        """The first half of the rows go on from a past of a page and a token, the rest start sequences."""
        room = allocator.available * self.cache.page_size
        past = min(self.cache.page_size + 1, self.max_model_len - 1, room // 4)
        chunks: list[Chunk] = []
        while count > 0 and allocator.available > 0:
            rows = min(
                count if chunks else -(-count // 2),
                self.max_model_len - past,
                allocator.available * self.cache.page_size - past,
            )
            if rows < 1:
                break
            chunks.append(Chunk(self._sequence(past + rows, allocator, generator), past, past + rows))
            count, past = count - rows, 0
        return PrefillBatch(tuple(chunks))

    def _sequence(self, length: int, allocator: PageAllocator, generator: torch.Generator) -> Sequence:
        tokens = torch.randint(0, self.vocab, (length,), generator=generator).tolist()
        return Sequence("", tokens, length, 1, pages=allocator.take(-(-length // self.cache.page_size)))


class _Scene:
    """Inputs over pages with a known random past."""

    def __init__(self, inputs: Inputs, cache: KvCache, seed: int) -> None:
        self.inputs = inputs
        self._cache = cache
        self._seed = seed
        owned = torch.unique(inputs.tables)
        self.pages = owned[owned != SCRATCH_PAGE].to(cache.device)
        """All that the sequences own."""

    def reset(self) -> None:
        """The past, with nothing of this pass written. It is drawn each time: kept, the past of a large size would be
        gigabytes that the KV cache could have."""
        self._cache.draw(self.pages, self._seed)


def _same_bits(where: str, replayed: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for index, (got, wanted) in enumerate(zip(replayed, expected, strict=True)):
        if not torch.equal(got, wanted):
            wrong = int((got != wanted).sum())
            raise SelfCheckFailed(
                f"{where}: {wrong} of {got.numel()} elements of result {index} differ from the uncaptured code"
            )


def _furthest(one: Tensor, other: Tensor) -> float:
    """The largest difference of two elements; NaN when there is one."""
    return float((one.float() - other.float()).abs().max())


def _copies(results: tuple[Any, ...]) -> tuple[Tensor, ...]:
    return tuple(result.clone() for result in tensor_pytree.leaves_of(results)[0])
