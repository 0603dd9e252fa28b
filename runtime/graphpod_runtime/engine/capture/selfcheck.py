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
        scenes = Scenes(self.phase, self.cache, self.vocab, self.max_model_len, self.long_row, self.trees)
        wanted = tuple(comparisons(self.subject.sizes))
        references = References.of(wanted, scenes, self.subject)
        for size, each in groupby(wanted, key=lambda comparison: comparison.size):
            for comparison in each:
                self._check(comparison, scenes.of(comparison.count, references.book(comparison)), references)
            yield size

    def _check(self, comparison: Comparison, scene: Scene, references: References) -> None:
        """Replays a graph, for the comparisons that are asked for."""
        size = comparison.size
        where = f"{self.phase} size {size} with {scene.inputs.count} rows"
        scene.reset()
        self.subject.poison_results(size)
        replayed = copies(self.subject.replay(scene.inputs, size))
        # What ranks compute they compute together, so none passes over what another needs.
        if comparison.uncaptured and self.ranks.most(int(not references.equal(scene, replayed))):
            self._against_uncaptured(where, scene, size, replayed)
        if comparison.eager:
            self._against(where, scene, size, replayed, self.subject.traced)
        if comparison.eager and self.subject.compiled_trace:
            scene.reset()
            with uncompiled():
                traced = copies(self.subject.traced(scene.inputs, scene.inputs.count))
                self._against(f"{where}, as it was traced", scene, size, traced, self.subject.eager)

    def _against_uncaptured(self, where: str, scene: Scene, size: int, replayed: tuple[Tensor, ...]) -> None:
        """SelfCheckFailed when `replayed`, or what the replay has left in the pages of `scene`, is not what the code
        that was captured makes of it."""
        written = self.cache.take(scene.pages)
        scene.reset()
        expected = self.subject.uncaptured(scene.inputs, size)
        with self.ranks.agreed():
            _same_bits(where, replayed, copies(expected))
            if not self.cache.holds(scene.pages, written):
                raise SelfCheckFailed(f"{where}: the replay wrote other KV pages or values than the uncaptured code")

    def _against(
        self,
        where: str,
        scene: Scene,
        size: int,
        replayed: tuple[Tensor, ...],
        eager: Callable[[Inputs, int], tuple[Any, ...]],
    ) -> None:
        """SelfCheckFailed when `replayed` is further from plain `eager` than padding moves that."""
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
