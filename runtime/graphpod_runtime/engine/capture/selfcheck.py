"""The self-check: before Ready, every graph is replayed on inputs unlike those of its capture and compared.

Twice over, on the rows that `graphpod_policy.cost.selfcheck` names.

(a) Bit for bit with the very code it captured, run eagerly on the same padded buffers: outputs and the
KV pages written. That finds a frozen value, a reused address, a break that does not write where it should. A larger
size's run of that code will do where its bits are the same (`references.py`).
(b) For some sizes, with plain eager on fresh unpadded tensors: that finds what (a) shares, such as a buffer that
is loaded wrongly. Rounding differs there, because kernels differ by row count and by the width of block tables; the
allowance is four times what padding of both does to plain eager, so it is measured, not chosen. Where activations are
rounded to FP8, a last place tips one now and then, and is an eighth of it off from there on. Where a router chooses
experts, it tips a choice of two that are close. Chance decides which runs have one; so there it is four times what
tipping some of them on purpose does, if that is more.

What is compiled rounds in its own way, which no padding explains. So plain eager runs the same compiled code as the
graphs, and `compiled/source_comparison.py` compares that with what it was compiled from. A compiled trace is not the
model's code, with whose mistakes it would stand on both sides: as it was traced, uncompiled, it too is compared with
the model's, once for a size, on the rows that pad it most.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_policy import Phase
from graphpod_policy.cost.selfcheck import Comparison, comparisons
from graphpod_runtime.base.errors import SelfCheckFailed
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.opaque_call import uncompiled
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.distributed.agreement import ALONE, Ranks
from graphpod_runtime.engine.capture.references import References, copies
from graphpod_runtime.engine.capture.scenes import Scene, Scenes

ROUNDING_ALLOWANCE = 4
"""Times the difference that padding makes to plain eager."""
TOGETHER = 16
"""Sizes whose comparisons a device makes before the host waits for what they have found."""


class Found(NamedTuple):
    """What a comparison has found: numbers on the device, which nothing has waited for, and what they mean."""

    numbers: Tensor
    """float64 [n]."""
    judge: Callable[[list[float]], None]
    """SelfCheckFailed where they are of a graph that is wrong."""


def read(found: Sequence[Found]) -> Iterator[list[float]]:
    """The numbers of each; the device is waited for once."""
    values = torch.cat([one.numbers for one in found]).tolist() if found else []
    ends = accumulate(len(one.numbers) for one in found)
    return (values[end - len(one.numbers) : end] for one, end in zip(found, ends, strict=True))


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
    together: int = 1
    """Sizes that are compared before the host waits for the device, which has work meanwhile. More than one are of one
    rank, and on a GPU: an uncaptured run that a size needs by itself costs it another replay, and a CPU needs most."""

    def sizes(self) -> Iterator[int]:
        """Checks every graph, yielding each size that passed. SelfCheckFailed names the first bad one."""
        scenes = Scenes(self.phase, self.cache, self.vocab, self.max_model_len, self.long_row, self.trees)
        wanted = tuple(comparisons(self.subject.sizes))
        references = References.of(wanted, scenes, self.subject)
        by_size = [(size, tuple(each)) for size, each in groupby(wanted, key=lambda comparison: comparison.size)]
        for first in range(0, len(by_size), self.together):
            found = [
                (size, [one for comparison in each for one in self._compared(comparison, scenes, references)])
                for size, each in by_size[first : first + self.together]
            ]
            values = read([one for _, each in found for one in each])
            for size, each in found:
                with self.ranks.agreed():
                    for one in each:
                        one.judge(next(values))
                yield size

    def _compared(self, comparison: Comparison, scenes: Scenes, references: References) -> list[Found]:
        """Replays a graph, for the comparisons that are asked for."""
        size, scene = comparison.size, scenes.of(comparison.count, references.book(comparison))
        where, found = f"{self.phase} size {size} with {scene.inputs.count} rows", list[Found]()
        replayed = self._replayed(scene, size)
        if comparison.uncaptured:
            unlike = references.unlike(scene, replayed)
            if self.together > 1 and unlike is not None:
                found.append(Found(unlike.double().view(1), partial(self._judge_unlike, where, comparison, scenes)))
            # What ranks compute they compute together, so none passes over what another needs.
            elif self.ranks.most(int(unlike is None or bool(unlike))):
                found.append(self._against_uncaptured(where, scene, size, replayed))
        if comparison.eager:
            found.append(self._against(where, scene, size, replayed, self.subject.traced))
        if comparison.eager and comparison.uncaptured and self.subject.compiled_trace:
            scene.reset()
            with uncompiled():
                traced = copies(self.subject.traced(scene.inputs, scene.inputs.count))
                found.append(self._against(f"{where}, as it was traced", scene, size, traced, self.subject.eager))
        return found

    def _replayed(self, scene: Scene, size: int) -> tuple[Tensor, ...]:
        scene.reset()
        self.subject.poison_results(size)
        return copies(self.subject.replay(scene.inputs, size))

    def _judge_unlike(self, where: str, comparison: Comparison, scenes: Scenes, values: list[float]) -> None:
        """Of a replay that is unlike the reference, an uncaptured run of its own size decides. Others have overwritten
        its scene, so it has a new one, whose tokens no other replay has left in a buffer."""
        if values[0]:
            scene = scenes.of(comparison.count)
            found = self._against_uncaptured(where, scene, comparison.size, self._replayed(scene, comparison.size))
            found.judge(next(read([found])))

    def _against_uncaptured(self, where: str, scene: Scene, size: int, replayed: tuple[Tensor, ...]) -> Found:
        """Whether `replayed`, and what the replay has left in the pages of `scene`, is what the code that was captured
        makes of it."""
        unlike_now, counts = scene.keep(), [one.numel() for one in replayed]
        scene.reset()
        expected = copies(self.subject.uncaptured(scene.inputs, size))
        wrong = [(got != wanted).sum() for got, wanted in zip(replayed, expected, strict=True)]
        other = unlike_now()

        def judge(values: list[float]) -> None:
            *of_results, of_pages = values
            for index, (number, count) in enumerate(zip(of_results, counts, strict=True)):
                if number:
                    what = f"{number:.0f} of {count} elements of result {index} differ from the uncaptured code"
                    raise SelfCheckFailed(f"{where}: {what}")
            if of_pages:
                raise SelfCheckFailed(f"{where}: the replay wrote other KV pages or values than the uncaptured code")

        return Found(torch.stack([one.double() for one in (*wrong, other)]), judge)

    def _against(
        self,
        where: str,
        scene: Scene,
        size: int,
        replayed: tuple[Tensor, ...],
        eager: Callable[[Inputs, int], tuple[Any, ...]],
    ) -> Found:
        """Whether `replayed` is no further from plain `eager` than padding moves that."""
        count = scene.inputs.count
        scene.reset()
        plain = copies(eager(scene.inputs, count))
        scene.reset()
        others = [copies(eager(self._padded(scene.inputs), max(size, count + 1)))]
        if self.tipped is not None:
            scene.reset()
            with self.tipped():
                others.append(copies(eager(scene.inputs, count)))
        allowances = [
            ROUNDING_ALLOWANCE * torch.stack([_furthest(wanted, other[index]) for other in others]).max()
            for index, wanted in enumerate(plain)
        ]
        differences = [
            self._unlikely(got, wanted, plain[0], allowances[0]) if self._chosen(index) else _furthest(got, wanted)
            for index, (got, wanted) in enumerate(zip(replayed, plain, strict=True))
        ]

        def judge(values: list[float]) -> None:
            pairs = zip(values[: len(plain)], values[len(plain) :], strict=True)
            for index, (difference, allowed) in enumerate(pairs):
                if self._chosen(index):
                    if difference:
                        raise SelfCheckFailed(f"{where}: the greedy token is not the most likely one of plain eager")
                elif not difference <= allowed:
                    words = f"differs from plain eager by {difference:.3g}; padding alone explains {allowed:.3g}"
                    raise SelfCheckFailed(f"{where}: {words}")

        return Found(torch.stack([*differences, *allowances]), judge)

    def _chosen(self, index: int) -> bool:
        """Whether a result is a step's second one: the greedy choice made from the first one."""
        return self.phase is Phase.Decode and index == 1

    def _unlikely(self, got: Tensor, wanted: Tensor, logits: Tensor, certain: Tensor) -> Tensor:
        """How many of the tokens that were chosen are less likely by plain eager's `logits` than rounding explains."""
        scores = logits.float()
        gap = scores.gather(1, wanted[:, None]) - scores.gather(1, got.clamp(0, self.vocab - 1)[:, None])
        return (gap <= 2 * certain).logical_not().sum().double()

    def _padded(self, inputs: Inputs) -> Inputs:
        """`inputs` with block tables as wide as a captured step's, whose attention may run in another shape for it."""
        tables = inputs.tables
        width = -(-self.max_model_len // self.cache.page_size)
        wide = functional.pad(tables, (0, max(0, width - tables.shape[1])), value=SCRATCH_PAGE)
        return replace(inputs, tables=wide)


def _furthest(one: Tensor, other: Tensor) -> Tensor:
    """The largest difference of two elements, one element; NaN when there is one."""
    return (one.float() - other.float()).abs().max().double()
