"""The first rank: what it launches and lands, the others do, too."""

import weakref
from collections.abc import Callable, Iterator
from collections.abc import Sequence as List
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

import torch

from graphpod_policy import EngineConfig, ExitCode
from graphpod_runtime.base.failure import RankFailed, StartFailure
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.distributed.connection import connect, disconnect
from graphpod_runtime.distributed.parting import let_go
from graphpod_runtime.distributed.pipeline import Position
from graphpod_runtime.engine.forward.pass_in_flight import PassInFlight
from graphpod_runtime.engine.ranks.copies import LeadingCopies
from graphpod_runtime.engine.ranks.expert_balance import ExpertBalance
from graphpod_runtime.engine.ranks.messages import Drafts, Land, Launch, Row
from graphpod_runtime.engine.ranks.others import Others, RankLost
from graphpod_runtime.engine.ranks.pass_answers import PassAnswer
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import Batch, DecodeBatch
from graphpod_runtime.engine.schedule.drafting import DraftBatch
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.engine.start.device import device_of
from graphpod_runtime.graphs.segments.cuda import keeping_graphs
from graphpod_runtime.kernels.mixture.choice_totals import count_choices
from graphpod_runtime.models.stage import loader_of
from graphpod_runtime.wire.messages import Fatal
from graphpod_runtime.wire.report import Report

SPARE = 64
"""Of ended sequences: those that go on are sent again as seldom where batches are small."""


@dataclass(slots=True)
class _Known:
    """What other ranks know of a sequence."""

    number: int
    tokens: int = 0
    pages: int = 0
    losses: int = 0


@dataclass(slots=True)
class LaunchOrders:
    """What of batches other ranks do not know yet. They remember about `kept` sequences, those that have pages among
    them, so that only what is new is sent of them, and so that what a seat has of one is lost at all ranks or at none.
    """

    kept: int
    _known: dict[Sequence, _Known] = field(default_factory=dict)
    _numbers: int = 0

    def of(
        self, batch: Batch, given: List[int] | None, pages: PageAllocator, answer: PassAnswer = PassAnswer.Nothing
    ) -> Launch:
        """What they need to launch `batch`, in front of which pages of `pages` are zeroed."""
        forgotten: list[int] = []
        if isinstance(batch, DecodeBatch):
            entries = [(one, end - 1, end) for one, end in zip(batch.sequences, batch.ends, strict=True)]
        else:
            entries = [(chunk.sequence, chunk.start, chunk.end) for chunk in batch.chunks]
        if len(self._known) > self.kept:
            staying = {sequence for sequence, _, _ in entries}
            gone = [one for one in self._known if one not in staying and not (one.in_flight or one.pages)]
            forgotten = [self._known.pop(sequence).number for sequence in gone]
        decode = isinstance(batch, DecodeBatch)
        rows = [self._row(*entry, decode=decode) for entry in entries]
        drafts = Drafts(list(batch.widths), list(batch.rooms)) if isinstance(batch, DraftBatch) else None
        kept = None if given is None else list(given)
        unclean = sorted(pages.unclean), sorted(pages.unclean_drafts)
        return Launch(decode, rows, *unclean, kept, forgotten, drafts, answer)

    def _row(self, sequence: Sequence, start: int, end: int, *, decode: bool) -> Row:
        known = self._known.get(sequence)
        if known is None:
            self._numbers += 1
            known = self._known[sequence] = _Known(self._numbers)
        # A sequence that decodes keeps its pages but for losses, and gets more; one that is prefilled may have others.
        same = decode and known.losses == sequence.page_losses and known.pages <= len(sequence.pages)
        kept = known.pages if same else 0
        pool = sequence.pooled
        row = Row(
            known.number,
            start,
            end,
            known.tokens,
            kept,
            sequence.page_losses,
            sequence.tokens[known.tokens :],
            sequence.pages[kept:],
            sequence.prompt_len,
            sequence.unscored,
            None if pool is None else pool.by,
            0 if pool is None else pool.known,
        )
        known.tokens, known.pages, known.losses = len(sequence.tokens), len(sequence.pages), sequence.page_losses
        return row


class LeadingRunner(Runner):
    """The runner of the first rank."""

    answer = PassAnswer.Nothing
    """Of the last stage of a pipeline to the pass that is launched next."""
    _balance: ExpertBalance | None = None

    def __init__(
        self, config: EngineConfig, report: Callable[[Report], None], started_at: float | None, others: Others
    ) -> None:
        """Returns when all ranks have met. StartFailure where this one has no GPU."""
        self._others, place = others, Position(0, config.features.tensor, config.features.pipeline)
        # Kept: the collector forgets weak references to what goes with this runner before it calls `_leave`.
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self.leave = leave = weakref.finalize(self, _leave, others, self._graphs)
        """Lets the others leave; a second call does nothing."""
        try:
            ranks, pipeline = connect(place, others.meeting.collectives, device_of(config.features, 0))
            super().__init__(config, report, started_at, loader_of(place, pipeline, config.features.expert), ranks)
            if config.features.expert > 1:
                self._balance = ExpertBalance(config.features, device_of(config.features, 0), self.counters)
        except BaseException:
            others.abandon()
            leave()
            raise

    def start(self) -> None:
        with self._naming(starts=True), keeping_graphs(self._graphs):
            super().start()
        if self._balance is not None and (mixture := self._engine.model.shape.mixture) is not None:
            self._balance.begin(mixture.experts)
        assert self.config.max_batch is not None, "a start has derived it"
        self._orders = LaunchOrders(2 * self.config.max_batch + SPARE)
        if self.host_tier is not None:
            copies = LeadingCopies(self.host_tier.copies, self._others, self.host_tier.parts, self.let_others_go_on)
            self.host_tier.copies, self.host_tier.by_rank = copies, copies.by_rank

    def launch(self, batch: Batch, given: List[int] | None = None) -> PassInFlight:
        with self._naming():
            super()._join(batch)
            self._others.send(self._orders.of(batch, given, self.pages, self.answer))
            return super().launch(batch, given)

    def _join(self, batch: Batch) -> None:
        """Nothing more: it may launch copies, whose orders come in front of that of the pass."""

    def let_others_go_on(self) -> None:
        """Before this rank waits for the others to launch something: none of them waits for it."""

    def choose(self, flight: PassInFlight) -> None:
        with self._naming():
            super().choose(flight)

    def land(self, flight: PassInFlight) -> Yielded:
        with self._naming():
            self._others.send(Land())
            yielded = super().land(flight)
        if self._balance is not None:
            self._balance.landed()
        return yielded

    @contextmanager
    def _naming(self, *, starts: bool = False) -> Iterator[None]:
        """RankLost instead of the error of a collective in which a rank is missing, StartFailure in a start that a rank
        has ended with words."""
        outermost, self._others.awaited = not self._others.awaited, True
        # Looked at after that is set: the thread that sees trouble first ends this process only where it waits.
        if (trouble := self._others.trouble) is not None:
            self._others.awaited = not outermost
            self._lost(trouble, starts=starts)
        try:
            yield
        except RankFailed as failure:
            trouble = self._others.cause()
            self._others.abandon()
            if trouble is None:
                raise
            raise _ended_start(trouble) from failure
        except StartFailure:
            self._others.abandon()
            raise
        except Exception as error:
            if (trouble := self._others.cause()) is None:
                raise
            self._others.abandon()
            raise RankLost(trouble) from error
        except BaseException:
            # Interrupted, as by Ctrl-C: the others wait in a collective to which this rank does not come back.
            self._others.abandon()
            raise
        else:
            # What a GPU has computed since they were ended is meaningless.
            if (trouble := self._others.trouble) is not None:
                self._lost(trouble, starts=starts)
        finally:
            self._others.awaited = not outermost

    def _lost(self, trouble: Fatal, *, starts: bool) -> NoReturn:
        """Raises what `trouble` of another rank ends a pass with, or a start."""
        if starts:
            self._others.abandon()
            raise _ended_start(trouble)
        raise RankLost(trouble)


def _ended_start(trouble: Fatal) -> RankLost | StartFailure:
    """What a start raises that another rank has ended: that rank's words, if it had any."""
    if trouble.code in (ExitCode.RankDied, ExitCode.RankStuck):
        return RankLost(trouble)
    return StartFailure(ExitCode(trouble.code), trouble.message)


def _leave(others: Others, graphs: List[torch.cuda.CUDAGraph]) -> None:
    count_choices(None)
    others.leave()
    if others.forsaken:
        let_go()
    # The end of a NCCL communicator waits for the end of every graph that has captured its kernels.
    for graph in graphs:
        graph.reset()
    disconnect()
    others.close()
