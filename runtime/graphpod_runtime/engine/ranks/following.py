"""A rank that is not the first: it launches what it is ordered to, and decides nothing.

Its sequences are likenesses of the first rank's, with what a forward reads. How requests choose their tokens it does
not know: every likeness is greedy, and the first rank's tokens replace what it chose.
"""

from collections import deque

from graphpod_runtime.engine.forward.pass_in_flight import PassInFlight
from graphpod_runtime.engine.forward.unread_inputs import rehearse
from graphpod_runtime.engine.ranks.copies import FollowingCopies
from graphpod_runtime.engine.ranks.messages import AwaitCopies, Choose, Land, Launch, Load, Order, Rouse, Row, Store
from graphpod_runtime.engine.ranks.pass_answers import yielding
from graphpod_runtime.engine.ranks.stage_runner import StageRunner
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import Batch, Chunk, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.drafting import DraftBatch, DraftsYielded, landed, launched
from graphpod_runtime.engine.schedule.pooled import Pooled
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.engine.schedule.yielded import Yielded


class Following:
    """Over the started `runner` of this rank."""

    def __init__(self, runner: Runner, copies: FollowingCopies | None = None) -> None:
        """`copies`: of the host tier, if there is one."""
        self._runner, self._copies = runner, copies
        self._likenesses: dict[int, Sequence] = {}
        self._flights: deque[tuple[Batch, PassInFlight]] = deque()

    def obey(self, order: Order) -> bool:
        """Carries out `order`; False when nothing more comes."""
        match order:
            case Launch():
                self._launch(order)
            case Choose():
                if isinstance(self._runner, StageRunner) and self._runner.pipeline.position.begins:
                    batch, flight = next(each for each in self._flights if each[1].undecided is not None)
                    self._runner.choose_behind(batch, flight)
            case Land():
                batch, flight = self._flights.popleft()
                self._landed(batch, self._runner.land(flight))
            case Store() | Load():
                self._tier.launch(order)
            case AwaitCopies():
                self._tier.tier.join_all()
            case Rouse():
                if not self._flights:
                    rehearse(self._runner.config.page_size, self._runner.engine.device)
            case _:
                return False
        return True

    def _launch(self, order: Launch) -> None:
        for number in order.forgotten:
            del self._likenesses[number]
        sequences = [self._likeness(row) for row in order.rows]
        batch: Batch
        if order.drafts is not None:
            ends = tuple(row.end for row in order.rows)
            batch = DraftBatch(tuple(sequences), ends, tuple(order.drafts.widths), tuple(order.drafts.rooms))
        elif order.decode:
            batch = DecodeBatch(tuple(sequences), tuple(row.end for row in order.rows))
        else:
            batch = PrefillBatch(
                tuple(Chunk(one, row.start, row.end) for one, row in zip(sequences, order.rows, strict=True))
            )
        self._runner.pages.unclean.update(order.unclean)
        self._runner.pages.unclean_drafts.update(order.unclean_drafts)
        if self._copies is not None:
            self._copies.join(batch)
        if isinstance(self._runner, StageRunner):
            self._runner.answer = order.answer
        flight = self._runner.launch(batch, order.given)
        if isinstance(self._runner, StageRunner):
            self._runner.follow(flight)
        if isinstance(batch, DraftBatch):
            launched(batch)
        else:
            for sequence, end in zip(sequences, _ends(batch), strict=True):
                sequence.launched = end
        self._flights.append((batch, flight))

    @property
    def _tier(self) -> FollowingCopies:
        assert self._copies is not None, "all ranks have a part of the host pool, or none has"
        return self._copies

    def _landed(self, batch: Batch, yielded: Yielded) -> None:
        sequences, ends = _sequences(batch), _ends(batch)
        if isinstance(batch, DraftBatch) and isinstance(yielded, DraftsYielded):
            ends = landed(batch, yielded)
            for sequence, token, more in zip(sequences, yielded.tokens, yielded.more, strict=True):
                _goes_on(sequence, (token, *more))
        elif self._runner.config.features.speculative is not None:
            # Seats of drafts are compared with all that is known; the first rank's orders bring the same.
            due = yielding(batch)
            for sequence, token in zip(sequences, yielded.tokens, strict=True):
                if sequence in due:
                    _goes_on(sequence, (token,))
        for sequence, end in zip(sequences, ends, strict=True):
            sequence.computed = end

    def _likeness(self, row: Row) -> Sequence:
        sequence = self._likenesses.get(row.number)
        if sequence is None:
            sequence = Sequence(str(row.number), [], row.prompt_len, 1)
            if row.pooling is not None:
                sequence.pooled = Pooled(row.pooling)
            self._likenesses[row.number] = sequence
        if sequence.pooled is not None:
            # What runs a chunk, a graph or none, depends on how many of its rows are to be pooled.
            sequence.pooled.known = row.pooled
        sequence.tokens[row.known :] = row.tokens
        sequence.pages[row.kept :] = row.pages
        sequence.page_losses = row.losses
        scored = row.unscored < row.prompt_len
        sequence.wants = LogprobRequest(prompt=0, prompt_start=row.unscored) if scored else LogprobRequest()
        return sequence


def _goes_on(sequence: Sequence, tokens: tuple[int, ...]) -> None:
    """With `tokens`, up to one that is none: there the first rank ends it, and its pages are others' then."""
    for token in tokens:
        if token < 0:
            sequence.pages.clear()
            return
        sequence.tokens.append(token)


def _sequences(batch: Batch) -> list[Sequence]:
    return [*batch.sequences] if isinstance(batch, DecodeBatch) else [chunk.sequence for chunk in batch.chunks]


def _ends(batch: Batch) -> list[int]:
    return [*batch.ends] if isinstance(batch, DecodeBatch) else [chunk.end for chunk in batch.chunks]
