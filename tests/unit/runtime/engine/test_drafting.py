"""Passes over drafts, a pass ahead of what is known: texts, reasons and pages are those of a plain scheduler."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_policy import SpeculativeMethod
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.schedule.batch import Batch
from graphpod_runtime.engine.schedule.drafting import DraftBatch, DraftsYielded, PlainReason, Speculation
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.wire.messages import FinishReason
from tests.tries import tries
from tests.unit.runtime.engine.test_run_ahead import END, EVENTS, LIMITS, PAGE, Device, Run, Text, rows_of


class DraftDevice(Device):
    """As Device, whose drafts are right as often as a coin says. Only it knows how far a flying sequence has come."""

    right = 0.6
    lengths: dict[str, int]
    accepted = 0
    finds_nothing: frozenset[str] = frozenset()

    def launch(self, batch: Batch) -> Yielded:
        self.lengths = getattr(self, "lengths", {})
        if not isinstance(batch, DraftBatch):
            for sequence, _, end, yields in rows_of(batch):
                if yields:
                    self.lengths[sequence.id] = end + 1
            return super().launch(batch)
        assert len(self.flying) <= int(self.ahead)
        self.check_pages()
        tokens, more, drafted = [], [], []
        for sequence, end, width, room in zip(batch.sequences, batch.ends, batch.widths, batch.rooms, strict=True):
            own, length = sequence.id, self.lengths[sequence.id]
            assert length <= end <= len(sequence.pages) * PAGE, "too few pages for the latest token"
            assert room <= len(sequence.pages) * PAGE
            text = [*sequence.tokens[: sequence.prompt_len]]
            text += [self.text.token(own, at) for at in range(sequence.prompt_len, length + width)]
            coin = random.Random(f"{own} {length}")
            run, wrong = [self.text.token(own, length)], False
            for place in range(width):
                if place and length + place > room:
                    break
                wrong = wrong or (place > 0 and (coin.random() > self.right or text[length + place - 1] < 0))
                written = ("wrong",) if wrong else tuple(text[: length + place])
                at = length + place - 1
                self.cells[sequence.pages[at // PAGE], at % PAGE] = written  # type: ignore[assignment]
                if place and not wrong:
                    run.append(self.text.token(own, length + place))
            for at in range(length):
                assert self.cells[sequence.pages[at // PAGE], at % PAGE] == tuple(text[: at + 1]), "another text"
            self.lengths[own] = length + len(run)
            self.accepted += len(run) - 1
            tokens.append(run[0])
            more.append(tuple(run[1:]))
            drafted.append(None if own in self.finds_nothing else min(width - 1, room - length))
            self.launched[own] = self.launched.get(own, 0) + 1
        yielded = DraftsYielded(tokens, more=tuple(more), drafted=tuple(drafted))
        self.flying.append((batch, yielded))
        return yielded


class DraftRun(Run):
    """A Run with drafts."""

    def __init__(self, text: Text, pages: int, width: int, max_batch: int = 8, **changes: Any) -> None:
        super().__init__(text, pages, **changes)
        self.device = DraftDevice(text, self.allocator, self.ahead)
        speculation = Speculation(SpeculativeMethod.Ngram, width, max_batch)
        limits = replace(LIMITS, prefix_cache=self.prefix_cache, speculation=speculation)
        self.scheduler = Scheduler(self.allocator, limits, (END,))
        self.run_ahead = RunAhead(self.scheduler, self.device)


@tries(400)
@given(
    pages=st.integers(10, 24),
    events=st.lists(EVENTS, max_size=60),
    seed=st.integers(0, 10**6),
    odd=st.sampled_from([0.0, 0.05, 0.3]),
    ahead=st.booleans(),
    prefix_cache=st.booleans(),
    width=st.integers(1, 9),
    max_batch=st.integers(1, 3),
)
def test_texts_reasons_and_pages_are_those_of_a_model_without_drafts(
    pages: int, events: list[Any], seed: int, odd: float, ahead: bool, prefix_cache: bool, width: int, max_batch: int
) -> None:
    """Ends of every kind within accepted runs, aborts and preemption in flight, drafts that pages are short for."""
    run = DraftRun(Text(seed, odd), pages, width, max_batch, ahead=ahead, prefix_cache=prefix_cache)
    for number, (kind, *numbers) in enumerate(events):
        if kind == "submit":
            run.submit(str(number), *numbers)
        elif kind == "abort":
            run.abort(str(numbers[0]))
        else:
            run.turn()
    run.drain()
    run.check()


def test_right_drafts_save_passes_and_the_host_is_one_pass_ahead_all_the_same() -> None:
    run = DraftRun(Text(1, odd=0.0), 24, 4)
    run.device.right = 1.0
    run.submit("a", 3, 17)
    seen = []
    for _ in range(5):
        run.turn()
        seen.append((len(run.got["a"]), len(run.device.flying)))
    assert seen == [(0, 1), (1, 1), (5, 1), (9, 1), (13, 1)]
    run.drain()
    run.check()


def test_no_position_behind_the_last_token_of_an_answer_is_computed() -> None:
    """At the model's end there is none. The last token itself may be, by a pass that was ahead."""
    run = DraftRun(Text(1, odd=0.0), 24, 9)
    run.device.right = 1.0
    run.submit("a", 3, 6)
    run.drain()
    run.check()
    pages = {page: index for index, page in enumerate(dict.fromkeys(page for page, _ in run.device.cells))}
    assert max(pages[page] * PAGE + at for page, at in run.device.cells) <= 3 + 6 - 1


def test_drafts_give_their_pages_back_before_a_request_is_set_back() -> None:
    run = DraftRun(Text(3, odd=0.0), 9, 9)
    run.device.right = 0.0
    plain = Run(Text(3, odd=0.0), 9)
    for each in (run, plain):
        for id in "ab":
            each.submit(id, 6, 12)
        each.drain()
        each.check()
    assert run.scheduler.preemptions <= plain.scheduler.preemptions


def test_a_batch_that_is_too_large_decodes_without_drafts_and_is_counted() -> None:
    run = DraftRun(Text(1, odd=0.0), 24, 4, max_batch=1)
    run.submit("a", 3, 4)
    run.submit("b", 3, 9)
    run.drain()
    run.check()
    drafting = run.scheduler.drafting
    assert drafting is not None
    assert drafting.plain[PlainReason.Batch] >= 4
    assert run.device.accepted > 0, "alone, the longer one has drafts"


def test_tokens_without_drafts_are_counted_by_reason_when_they_land() -> None:
    run = DraftRun(Text(1, odd=0.0), 24, 4)
    run.device.right, run.device.finds_nothing = 0.0, frozenset("b")
    run.submit("a", 3, 4)
    run.submit("b", 3, 4)
    run.drain()
    run.check()
    drafting = run.scheduler.drafting
    assert drafting is not None
    # A prompt's pass brings the first token. Behind the last but one there is no room for a draft.
    assert drafting.plain == {PlainReason.NothingFound: 3, PlainReason.Room: 1}


@pytest.mark.parametrize("width", [2, 5])
def test_an_end_within_an_accepted_run_drops_what_is_behind_it(width: int) -> None:
    seed = next(seed for seed in range(1000) if len(Text(seed).naive(Sequence("a", [7], 1, 30))[0]) == 4)
    run = DraftRun(Text(seed), 20, width)
    run.device.right = 1.0
    run.submit("a", 1, 30)
    run.drain()
    run.check()
    assert run.ends["a"] in (FinishReason.Stop, FinishReason.Error)
