"""Serving contract 7: a mask that takes long holds up its own request, never the batch; and no text depends on it."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
from llguidance import LLTokenizer

from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.loop import GRAMMAR_SECONDS, Loop
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.grammar import matcher
from graphpod_runtime.grammar.compile import compiled
from graphpod_runtime.grammar.matcher import DOUBTED, AnswerGrammar, MaskWriter, Pace
from graphpod_runtime.wire.messages import Grammar

from .conftest import VOCABULARY
from .test_answers import Served, requests

ROW_BYTES = -(-VOCABULARY // 32) * 4
LETTERS = Grammar("regex", "[a-z]{30}")


class Held(Executor):
    """A thread that writes no mask before it is let go on."""

    def __init__(self) -> None:
        self.works: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.goes_on = False

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future = Future[Any]()
        self.works.append((future, work))
        if self.goes_on:
            self.go_on()
        return future

    def go_on(self) -> None:
        self.goes_on = True
        while self.works:
            future, work = self.works.pop(0)
            future.set_result(work())


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def passes(runner: Runner) -> float:
    return runner.counters.value("graphpod_forward_passes_total", phase="decode")


@pytest.mark.parametrize("modes", ["", "lockstep", "seats,poison"])
def test_no_text_depends_on_it(
    started: Callable[..., Runner],
    model_folder: Path,
    vocabulary: LLTokenizer,
    threads: Executor,
    monkeypatch: pytest.MonkeyPatch,
    modes: str,
) -> None:
    monkeypatch.setenv("GRAPHPOD_DEBUG", modes)
    runner = started(folder=model_folder)
    expected, before = Served(runner, requests(vocabulary, 32)).texts, passes(runner)
    monkeypatch.setattr(matcher, "SLOW_SECONDS", -1)  # none is ever trusted
    assert Served(runner, requests(vocabulary, 32, threads=threads)).texts == expected
    assert passes(runner) - before > before, "each runs in every second pass at most"


def test_no_text_depends_on_it_when_requests_are_set_back(
    runner: Runner, vocabulary: LLTokenizer, threads: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Served(runner, requests(vocabulary, 32)).texts
    monkeypatch.setattr(matcher, "SLOW_SECONDS", -1)
    runner.pages = PageAllocator(30)
    preempted = Served(runner, requests(vocabulary, 32, threads=threads))
    assert preempted.texts == expected
    assert preempted.scheduler.preemptions > 3


def test_a_mask_that_takes_long_holds_up_its_own_request_alone(runner: Runner, vocabulary: LLTokenizer) -> None:
    held = Held()

    def all_of() -> list[Sequence]:
        slow = AnswerGrammar(compiled(vocabulary, LETTERS), held, Pace(slow=True))
        return [
            Sequence("slow", [5, 6, 7], 3, 20, grammar=slow),
            Sequence("letters", [8, 9], 2, 20, grammar=AnswerGrammar(compiled(vocabulary, LETTERS))),
            Sequence("plain", [10, 11], 2, 20, ignore_eos=True),
        ]

    sequences = all_of()
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, 3), runner.eos_ids)
    run_ahead = RunAhead(scheduler, runner)
    for sequence in sequences:
        scheduler.submit(sequence)
    for _ in range(40):
        run_ahead.turn()
    assert [len(one.tokens) - one.prompt_len for one in sequences] == [1, 20, 20], "its prompt gave the first"
    assert (scheduler.running, run_ahead.waits) == (1, True)
    held.go_on()
    run_ahead.turn()
    assert not run_ahead.waits
    while run_ahead.busy:
        run_ahead.turn()
    texts = {one.id: one.tokens[one.prompt_len :] for one in sequences}
    assert {id: list(tokens) for id, (tokens, *_) in Served(runner, all_of()).texts.items()} == texts


def test_an_abort_while_its_mask_is_written_leaves_no_page(runner: Runner, vocabulary: LLTokenizer) -> None:
    held, free = Held(), runner.pages.free_pages
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, 3), runner.eos_ids)
    run_ahead = RunAhead(scheduler, runner)
    grammar = AnswerGrammar(compiled(vocabulary, LETTERS), held, Pace(slow=True))
    scheduler.submit(Sequence("slow", [5, 6, 7], 3, 20, grammar=grammar))
    for _ in range(4):
        run_ahead.turn()
    assert grammar.writing
    assert scheduler.abort("slow")
    held.go_on()
    assert not run_ahead.busy
    assert runner.pages.free_pages == free


def test_a_loop_that_waits_for_masks_alone_sleeps_between_its_looks(
    runner: Runner, vocabulary: LLTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Link:
        def __init__(self) -> None:
            self.asked: list[float] = []

        def poll(self, seconds: float) -> list[Any]:
            self.asked.append(seconds)
            return []

        def send(self, events: list[Any]) -> None:
            """Nothing."""

    held, link = Held(), Link()
    loop = Loop(runner, link, lambda: None)
    grammar = AnswerGrammar(compiled(vocabulary, LETTERS), held, Pace(slow=True))
    sequence = Sequence("slow", [5, 6, 7], 3, 20, grammar=grammar)
    loop.scheduler.submit(sequence)
    for _ in range(6):
        loop.turn()
    assert link.asked[-1] == GRAMMAR_SECONDS
    held.go_on()
    while loop.busy:
        loop.turn()
    assert len(sequence.tokens) == 23
    assert link.asked[-1] == 0


def test_masks_that_were_prepared_are_those_that_are_written_for_a_pass(
    vocabulary: LLTokenizer, threads: Executor
) -> None:
    def answers(threads: Executor | None) -> list[AnswerGrammar]:
        found = [AnswerGrammar(compiled(vocabulary, LETTERS), threads, Pace(slow=index % 2 == 0)) for index in range(5)]
        for index, one in enumerate(found):
            for token in vocabulary.tokenize_str("abcdefgh"[:index]):
                one.advance(token)
            one.prepare()
        return found

    rows = [numpy.full((5, ROW_BYTES // 4), -1, dtype=numpy.int32) for _ in range(2)]
    for these, own in zip(rows, (None, threads), strict=True):
        MaskWriter(2).write(answers(own), these.ctypes.data, ROW_BYTES)
    assert (rows[0] == rows[1]).all()
    assert rows[0].any()


def test_who_is_in_doubt_is_apart_until_its_masks_are_fast(
    vocabulary: LLTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    held.goes_on = True
    first, second = (AnswerGrammar(compiled(vocabulary, LETTERS), held) for _ in range(2))
    alone = AnswerGrammar(compiled(vocabulary, LETTERS))
    bits = numpy.zeros((3, ROW_BYTES // 4), dtype=numpy.int32)

    def write(slow: bool) -> None:
        monkeypatch.setattr(matcher, "SLOW_SECONDS", -1 if slow else 3600)
        MaskWriter(2).write([first, second, alone], bits.ctypes.data, ROW_BYTES)

    def next_mask(grammar: AnswerGrammar, slow: bool) -> None:
        monkeypatch.setattr(matcher, "SLOW_SECONDS", -1 if slow else 3600)
        grammar.advance(vocabulary.tokenize_str("a")[0])
        grammar.prepare()

    write(slow=False)
    assert not first.apart
    assert not second.apart
    write(slow=True)
    assert (first.apart, second.apart, alone.apart) == (True, True, False), "without threads none is"
    next_mask(first, slow=False)
    next_mask(second, slow=True)
    assert (first.apart, second.apart) == (False, True), "the other one was slow"
    for _ in range(DOUBTED - 1):
        next_mask(second, slow=False)
        assert second.apart
    next_mask(second, slow=False)
    assert not second.apart


def test_answers_begin_apart_until_one_of_the_same_grammar_has_had_fast_masks(
    vocabulary: LLTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matcher, "SLOW_SECONDS", 3600)
    held, pace = Held(), Pace(slow=True)
    held.goes_on = True
    first = AnswerGrammar(compiled(vocabulary, LETTERS), held, pace)
    assert AnswerGrammar(compiled(vocabulary, LETTERS), held, pace).apart
    for _ in range(DOUBTED):
        first.advance(vocabulary.tokenize_str("a")[0])
        first.prepare()
    second = AnswerGrammar(compiled(vocabulary, LETTERS), held, pace)
    assert (first.apart, second.apart) == (False, False)
    monkeypatch.setattr(matcher, "SLOW_SECONDS", -1)
    second.doubt()
    second.advance(vocabulary.tokenize_str("a")[0])
    second.prepare()
    assert second.apart
    assert AnswerGrammar(compiled(vocabulary, LETTERS), held, pace).apart, "a mask of the grammar was slow"
    assert not AnswerGrammar(compiled(vocabulary, LETTERS), held, Pace()).apart
