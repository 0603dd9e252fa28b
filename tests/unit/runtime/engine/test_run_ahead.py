"""A pass ahead of what is known: texts, reasons and pages are those of a scheduler that waits for every token."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.schedule.batch import Batch, DecodeBatch
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import DoesNotFit, QueueFull, Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.wire.messages import FinishReason
from tests.tries import tries

END, NAN = 0, -1
PAGE = 4
LIMITS = Limits(max_model_len=40, max_batch=3, prefill_chunk=8, page_size=PAGE, max_queue=2)
PROMPT_TOKEN = 7


class Text:
    """What a request is answered: a pure function of its id and the place in the text."""

    def __init__(self, seed: int, odd: float = 0.1) -> None:
        """`odd`: how often a text ends, or has no finite logits."""
        self._seed, self._odd = seed, odd

    def token(self, id: str, at: int) -> int:
        choose = random.Random(f"{self._seed} {id} {at}")
        if choose.random() < self._odd:
            return choose.choice([END, END, NAN])
        return choose.randrange(5, 99)

    def naive(self, sequence: Sequence) -> tuple[list[int], FinishReason]:
        """Token by token, alone: no batch, no page, no flight."""
        tokens: list[int] = []
        while True:
            token = self.token(sequence.id, sequence.prompt_len + len(tokens))
            if token == NAN:
                return tokens, FinishReason.Error
            tokens.append(token)
            if token == END:
                return tokens, FinishReason.Stop
            if len(tokens) >= sequence.max_tokens or sequence.prompt_len + len(tokens) >= LIMITS.max_model_len:
                return tokens, FinishReason.Length


def rows_of(batch: Batch) -> Iterator[tuple[Sequence, int, int, bool]]:
    """(sequence, first token, end, whether it yields a token) of each row or chunk."""
    if isinstance(batch, DecodeBatch):
        for sequence, end in zip(batch.sequences, batch.ends, strict=True):
            yield sequence, end - 1, end, True
    else:
        for chunk in batch.chunks:
            yield chunk.sequence, chunk.start, chunk.end, chunk.last


@dataclass
class Device:
    """Is Launching. It computes in the order of launches; each cell of its cache knows the text up to the token that
    lies there, and a pass that meets another text ends the test."""

    text: Text
    allocator: PageAllocator
    ahead: bool = True
    flying: list[tuple[Batch, Yielded]] = field(default_factory=list)
    cells: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    launched: dict[str, int] = field(default_factory=dict)
    """Rows that were to yield a token, by request."""

    def launch(self, batch: Batch) -> Yielded:
        assert len(self.flying) <= int(self.ahead)
        self.check_pages()
        tokens = []
        for sequence, start, end, yields in rows_of(batch):
            text = [*sequence.tokens[: sequence.prompt_len]]
            text += [self.text.token(sequence.id, at) for at in range(sequence.prompt_len, end)]
            for at in range(start, end):
                self.cells[sequence.pages[at // PAGE], at % PAGE] = tuple(text[: at + 1])
            for at in range(end):
                assert self.cells[sequence.pages[at // PAGE], at % PAGE] == tuple(text[: at + 1]), "another text"
            tokens.append(self.text.token(sequence.id, end) if yields else -1)
            self.launched[sequence.id] = self.launched.get(sequence.id, 0) + yields
        yielded = Yielded(tokens)
        self.flying.append((batch, yielded))
        return yielded

    def choose(self, flight: Yielded) -> None:
        """Nothing: `launch` has."""

    def land(self, flight: Yielded) -> Yielded:
        assert flight is self.flying[0][1], "passes land in their order"
        self.flying.pop(0)
        return flight

    def check_pages(self) -> None:
        """What a pass in flight may still write to is nobody else's."""
        free = set(self.allocator.free_pages)
        for batch, _ in self.flying:
            for sequence, _, end, _ in rows_of(batch):
                assert len(sequence.pages) * PAGE >= end, "its pages went before it landed"
                assert not free & set(sequence.pages)


@dataclass
class Run:
    """A run_ahead over a cache of `pages`, and what it said of each request."""

    text: Text
    pages: int
    ahead: bool = True
    prefix_cache: bool = False

    def __post_init__(self) -> None:
        self.allocator = PageAllocator(self.pages + 1)
        self.device = Device(self.text, self.allocator, self.ahead)
        self.scheduler = Scheduler(self.allocator, replace(LIMITS, prefix_cache=self.prefix_cache), (END,))
        self.run_ahead = RunAhead(self.scheduler, self.device)
        self.got: dict[str, list[int]] = {}
        self.ends: dict[str, FinishReason] = {}
        self.sequences: dict[str, Sequence] = {}

    def submit(self, id: str, prompt: int, new: int) -> bool:
        # Prompts begin alike and end in a token of their own.
        sequence = Sequence(id, [PROMPT_TOKEN] * (prompt - 1) + [100 + len(self.got)], prompt, new)
        try:
            self.scheduler.submit(sequence)
        except (QueueFull, DoesNotFit):
            return False
        self.got[id], self.sequences[id] = [], sequence
        return True

    def abort(self, id: str) -> None:
        assert self.scheduler.abort(id) == (id in self.got and id not in self.ends)
        if id in self.got:
            self.ends.setdefault(id, FinishReason.Abort)

    def turn(self) -> None:
        for progress in self.run_ahead.turn():
            id = progress.sequence.id
            assert id not in self.ends, "a token after the end"
            if progress.finish is not FinishReason.Error:
                self.got[id].append(progress.token)
            if progress.finish:
                self.ends[id] = progress.finish
        self.device.check_pages()

    def drain(self) -> None:
        turns = 0
        while self.run_ahead.busy:
            self.turn()
            turns += 1
            assert turns < 3000, "it does not advance"

    def check(self) -> None:
        """Every request ended once, as the naive model does; every page is back."""
        assert self.ends.keys() == self.got.keys()
        for id, sequence in self.sequences.items():
            tokens, reason = self.text.naive(sequence)
            if self.ends[id] is FinishReason.Abort:
                assert self.got[id] == tokens[: len(self.got[id])]
            else:
                assert (self.got[id], self.ends[id]) == (tokens, reason)
        assert self.scheduler.kv.available == self.allocator.capacity


EVENTS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 30), st.integers(1, 30)),
    st.tuples(st.just("abort"), st.integers(0, 40)),
    *[st.just(("turn",))] * 3,
)


@tries(300)
@given(
    pages=st.integers(10, 24),
    events=st.lists(EVENTS, max_size=60),
    seed=st.integers(0, 10**6),
    odd=st.sampled_from([0.0, 0.05, 0.3]),
    ahead=st.booleans(),
    prefix_cache=st.booleans(),
)
def test_texts_reasons_and_pages_are_those_of_a_model_that_never_runs_ahead(
    pages: int, events: list[Any], seed: int, odd: float, ahead: bool, prefix_cache: bool
) -> None:
    """Ends of every kind, aborts and preemption while a pass is in flight, with and without pages that are shared."""
    run = Run(Text(seed, odd), pages, ahead, prefix_cache)
    for number, (kind, *numbers) in enumerate(events):
        if kind == "submit":
            run.submit(str(number), *numbers)
        elif kind == "abort":
            run.abort(str(numbers[0]))
        else:
            run.turn()
    run.drain()
    run.check()


def test_the_host_is_one_pass_ahead_from_the_second_turn_on() -> None:
    run = Run(Text(1, odd=0.0), 20)
    run.submit("a", 3, 9)
    seen = []
    for _ in range(4):
        run.turn()
        seen.append((len(run.got["a"]), len(run.device.flying)))
    assert seen == [(0, 1), (1, 1), (2, 1), (3, 1)]
    run = Run(Text(1, odd=0.0), 20, ahead=False)
    run.submit("a", 3, 9)
    run.turn()
    assert (len(run.got["a"]), len(run.device.flying)) == (1, 0)


@pytest.mark.parametrize("new", [1, 2, 9])
def test_an_end_by_length_is_known_before_and_launches_nothing_in_vain(new: int) -> None:
    run = Run(Text(1, odd=0.0), 20)
    run.submit("a", 3, new)
    run.submit("longer", 3, 20)
    run.drain()
    run.check()
    assert run.device.launched == {"a": new, "longer": 20}


def test_an_end_that_the_text_brings_costs_one_pass_whose_token_nobody_hears_of() -> None:
    seed = next(seed for seed in range(1000) if len(Text(seed).naive(Sequence("a", [7], 1, 30))[0]) == 5)
    run = Run(Text(seed), 20)
    run.submit("a", 1, 30)
    run.drain()
    run.check()
    assert run.ends["a"] in (FinishReason.Stop, FinishReason.Error)
    assert run.device.launched["a"] == len(run.text.naive(run.sequences["a"])[0]) + 1 + (
        run.ends["a"] is FinishReason.Error
    )


def test_pages_of_an_aborted_request_are_kept_until_its_pass_has_landed_and_may_hold_nan_then() -> None:
    """Its last row, which nobody hears of, was not finite."""
    seed = next(seed for seed in range(10**5) if [Text(seed).token("a", at) == NAN for at in (3, 4, 5)] == [0, 0, 1])
    run = Run(Text(seed), 20)
    run.submit("a", 3, 20)
    for _ in range(3):
        run.turn()
    owned = sorted(run.sequences["a"].pages)
    assert len(run.got["a"]) == 2
    run.abort("a")
    assert (run.scheduler.busy, run.run_ahead.busy) == (False, True)
    assert not set(owned) & set(run.allocator.free_pages)
    run.turn()
    assert run.allocator.available == run.allocator.capacity
    assert run.allocator.take_unclean() == owned
    assert not run.run_ahead.busy


def test_preemption_waits_for_the_pass_in_flight_and_loses_no_token() -> None:
    run = Run(Text(3, odd=0.0), 8)
    for id in "abc":
        run.submit(id, 7, 20)
    run.drain()
    run.check()
    assert run.scheduler.preemptions > 0
