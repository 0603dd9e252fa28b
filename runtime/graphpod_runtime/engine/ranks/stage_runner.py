"""The runner of a pipeline's stage: the last one has the logits of a pass, the first rank chooses tokens from them.

The first rank launches its part of a pass and does not wait for the rest: what chooses the pass's tokens is launched
when a later pass goes on from them, or when the pass lands. Until then other passes run, so all stages have work.
Answers of the last stage come in the order of passes, and are taken in it.
"""

from collections import deque
from collections.abc import Sequence as List
from dataclasses import replace
from typing import Any

import torch

from graphpod_policy import Phase
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.distributed.pipeline import Pipeline
from graphpod_runtime.engine.forward.pass_in_flight import Forwarded, Moment, PassInFlight, Ran
from graphpod_runtime.engine.forward.sampling.sampler import greedy
from graphpod_runtime.engine.ranks.leading import LeadingRunner
from graphpod_runtime.engine.ranks.messages import Choose
from graphpod_runtime.engine.ranks.pass_answers import PassAnswer, answer_of, ends_of, yielding
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import Batch, DecodeBatch
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.models.stage import StageModel


class StageRunner(Runner):
    """Of a rank of any stage."""

    _defers = True
    answer = PassAnswer.Nothing
    """To the pass that is launched next, or was launched last."""

    @property
    def pipeline(self) -> Pipeline:
        return self._model.pipeline

    @property
    def _model(self) -> StageModel:
        model = self._engine.model
        assert isinstance(model, StageModel), "it was loaded as one"
        return model

    def launch(self, batch: Batch, given: List[int] | None = None) -> PassInFlight:
        """As `Runner.launch`, its tokens not chosen."""
        self._model.exchanges = self.answer is PassAnswer.Within
        try:
            return super().launch(batch, given)
        finally:
            self._model.exchanges = False

    def follow(self, flight: PassInFlight) -> None:
        """What comes behind a pass at a rank that is not the first: the last stage answers. The other ranks of the
        first stage choose when the first rank does."""
        here = self.pipeline.position
        if here.ends and self.answer in (PassAnswer.Tokens, PassAnswer.Logits):
            assert flight.undecided is not None, "a stage's tokens are chosen later"
            tokens = self.answer is PassAnswer.Tokens
            self.pipeline.answer(flight.undecided.chosen if tokens else flight.undecided.logits)
        if not here.begins:
            self.choose(flight)

    def choose_behind(self, batch: Batch, flight: PassInFlight) -> None:
        """Chooses the tokens of `batch`, behind which other passes may have been launched."""
        if sequences := yielding(batch):
            # Whose seats the tokens are for.
            self._engine.seats.seat(sequences, ends_of(batch))
        Runner.choose(self, flight)

    def _run(self, inputs: Inputs, began: Moment | None = None) -> tuple[tuple[Any, ...], Ran]:
        results, ran = super()._run(inputs, began)
        if inputs.phase is Phase.Decode and not self.pipeline.position.ends:
            # No token of it counts: the first rank's come from the last stage.
            states = results[0]
            blank = states.new_zeros(1, 1).expand(states.shape[0], self.vocabulary)
            results = blank, torch.zeros_like(inputs.tokens)
        return results, ran


class FirstStage(LeadingRunner, StageRunner):
    """Of the first rank."""

    def start(self) -> None:
        super().start()
        self._unanswered: deque[tuple[Batch, PassInFlight, PassAnswer]] = deque()

    def launch(self, batch: Batch, given: List[int] | None = None) -> PassInFlight:
        self.answer = answer_of(batch)
        with self._naming():
            self._take_answers(self._before(batch))
        flight = super().launch(batch, given)
        assert flight.undecided is not None, "a stage's tokens are chosen later"
        flight.undecided = _kept(flight.undecided)
        self._unanswered.append((batch, flight, self.answer))
        if self.answer is PassAnswer.Within:
            self._take_answers(1)
        return flight

    def let_others_go_on(self) -> None:
        """The last stage has room for its answers to all passes. On a GPU it launches so many of what would wait behind
        one that has no room, that it waits as well."""
        with self._naming():
            answers = [_answer_bytes(flight, answer) for _, flight, answer in self._unanswered]
            self._take_answers(len(answers) - self.pipeline.room_for(answers))

    def choose(self, flight: PassInFlight) -> None:
        """Nothing yet: a later launch or the landing of the pass does it."""

    def land(self, flight: PassInFlight) -> Yielded:
        with self._naming():
            while flight.undecided is not None:
                self._take_answers(1)
        return super().land(flight)

    def _before(self, batch: Batch) -> int:
        """How many passes must have their tokens before `batch` is launched: it goes on from these, or its own answers
        come while it is launched."""
        if self.answer is PassAnswer.Within:
            return len(self._unanswered)
        entries = batch.sequences if isinstance(batch, DecodeBatch) else [chunk.sequence for chunk in batch.chunks]
        wanted, count = set(entries), 0
        for place, (earlier, _, _) in enumerate(self._unanswered, 1):
            if not wanted.isdisjoint(yielding(earlier)):
                count = place
        return count

    def _take_answers(self, count: int) -> None:
        """Of the first `count` passes without; launches what chooses their tokens."""
        for _ in range(count):
            batch, flight, answer = self._unanswered.popleft()
            assert flight.undecided is not None, "answers come once"
            if answer in (PassAnswer.Tokens, PassAnswer.Logits):
                flight.undecided = self._answered(flight.undecided, answer)
            if self.pipeline.position.tensor > 1:
                self._others.send(Choose())
            self.choose_behind(batch, flight)

    def _answered(self, forwarded: Forwarded, answer: PassAnswer) -> Forwarded:
        """With the last stage's answer."""
        if answer is PassAnswer.Tokens:
            chosen = torch.zeros_like(forwarded.chosen)
            self.pipeline.take_answer(chosen)
            return replace(forwarded, chosen=chosen)
        logits = forwarded.logits.new_zeros(forwarded.logits.shape)
        self.pipeline.take_answer(logits)
        return replace(forwarded, logits=logits, chosen=greedy(logits))


def _answer_bytes(flight: PassInFlight, answer: PassAnswer) -> int:
    """That the last stage sends behind a pass."""
    assert flight.undecided is not None, "it has no answer yet"
    if answer is PassAnswer.Logits:
        return flight.undecided.logits.nbytes
    return flight.undecided.chosen.nbytes if answer is PassAnswer.Tokens else 0


def _kept(forwarded: Forwarded) -> Forwarded:
    """What of it lies in static buffers, which a later pass overwrites, as copies."""
    history = forwarded.history
    if history is not None:
        history = history._replace(tables=history.tables.clone())
    return replace(forwarded, positions=forwarded.positions.clone(), history=history)
