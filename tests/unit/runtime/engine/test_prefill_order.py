"""Which prompts share a prefill pass: long ones go on, short ones do not wait for them, and nobody waits for ever."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.engine.schedule.batch import DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.prompts import OVERTAKEN
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.yielded import Yielded
from tests.tries import tries
from tests.unit.runtime.engine.test_scheduler import scheduler, sequence, spans, step

LIMITS = Limits(max_model_len=4000, max_batch=40, prefill_chunk=16, page_size=4, max_queue=400)


def many_pages(**changes: Any) -> Scheduler:
    return scheduler(pages=8000, limits=replace(LIMITS, **changes))


def test_a_short_prompt_takes_part_in_the_passes_of_a_long_one() -> None:
    subject = many_pages()
    subject.submit(sequence("long", 1000))
    step(subject)
    subject.submit(sequence("short", 5))
    assert spans(step(subject)[0]) == [("short", 0, 5), ("long", 16, 27)]


def test_the_oldest_prompt_keeps_half_of_each_pass_and_shorter_ones_go_by_length() -> None:
    subject = many_pages()
    subject.submit(sequence("long", 1000))
    step(subject)
    for id, length in (("b", 20), ("a", 3), ("c", 2)):
        subject.submit(sequence(id, length, max_tokens=1))
    assert spans(step(subject)[0]) == [("b", 0, 8), ("long", 16, 24)]
    # "b" needs 12 tokens more, "a" and "c" in the queue less.
    assert spans(step(subject)[0]) == [("b", 8, 16), ("long", 24, 32)]
    assert spans(step(subject)[0]) == [("b", 16, 20), ("a", 0, 3), ("c", 0, 1), ("long", 32, 40)]


def test_prompts_of_one_length_go_one_after_the_other() -> None:
    """To share passes would end all of them late."""
    subject = many_pages()
    for id in "abc":
        subject.submit(sequence(id, 24, max_tokens=1))
    seen = [spans(step(subject)[0]) for _ in range(3)]
    assert seen == [[("a", 0, 16)], [("a", 16, 24), ("b", 0, 8)], [("b", 8, 24)]]


@pytest.mark.parametrize(("budget", "size"), [(None, 16), (6, 6), (100, 16)])
def test_between_two_decode_passes_a_prefill_pass_has_the_budget(budget: int | None, size: int) -> None:
    subject = many_pages(prefill_budget=budget)
    subject.submit(sequence("old", 20, max_tokens=50))
    assert spans(step(subject)[0]) == [("old", 0, 16)], "nothing decodes: a whole chunk"
    step(subject)
    subject.submit(sequence("new", 200))
    batches = [step(subject)[0] for _ in range(6)]
    assert [type(batch) for batch in batches] == [DecodeBatch, PrefillBatch] * 3
    assert [len(range(*spans(batch)[0][1:])) for batch in batches[1::2]] == [size] * 3


def test_a_prompt_that_ends_with_the_token_in_flight_leaves_a_whole_chunk_to_the_next() -> None:
    """It decodes no further, so nobody waits for a decode pass."""
    subject = many_pages(prefill_budget=6)
    subject.submit(sequence("scored", 10, max_tokens=1))
    subject.submit(sequence("next", 200, max_tokens=1))
    assert spans(subject.next()) == [("scored", 0, 10), ("next", 0, 6)]
    assert spans(subject.next()) == [("next", 6, 22)]


def test_who_has_no_room_is_not_overtaken() -> None:
    subject = scheduler(pages=20, limits=replace(LIMITS, max_model_len=80))
    subject.submit(sequence("long", 60, max_tokens=1))
    step(subject)
    head = sequence("head", 61, max_tokens=1)
    subject.submit(head)
    subject.submit(sequence("short", 2, max_tokens=1))
    assert spans(step(subject)[0]) == [("long", 16, 32)]
    assert head.overtaken == 0


def test_the_head_of_the_queue_is_overtaken_a_bounded_number_of_times() -> None:
    subject = many_pages()
    subject.submit(sequence("long", 2000, max_tokens=1))
    step(subject)
    head = sequence("head", 3000, max_tokens=1)
    subject.submit(head)
    short = 0
    while not head.pages:
        for _ in range(3):
            subject.submit(sequence(f"short {short}", 2, max_tokens=1))
            short += 1
        step(subject)
    assert head.overtaken == OVERTAKEN


ARRIVALS = st.lists(st.tuples(st.integers(1, 120), st.integers(1, 6), st.integers(-1, 1)), max_size=4)


@tries(150)
@given(passes=st.lists(ARRIVALS, max_size=40), budget=st.integers(2, 16))
def test_the_head_of_the_queue_is_admitted_when_the_prompts_before_it_are_computed(
    passes: list[list[tuple[int, int, int]]], budget: int
) -> None:
    """With room for it, every prefill pass until then is full. And all are answered."""
    subject = many_pages(max_batch=400, prefill_budget=budget)
    live: list[Sequence] = []

    def one_pass() -> None:
        full = budget if subject._decoding else LIMITS.prefill_chunk
        batch = subject.next()
        assert batch is not None
        if isinstance(batch, PrefillBatch):
            size = sum(chunk.end - chunk.start for chunk in batch.chunks)
            assert size <= full
            if any(not one.pages for one in live):
                assert size == full, "somebody waits, and the pass is not full"
        rows = batch.chunks if isinstance(batch, PrefillBatch) else batch.sequences
        for progress in subject.advance(batch, Yielded([9] * len(rows))):
            if progress.finish:
                live.remove(progress.sequence)

    for number, arrivals in enumerate(passes):
        for index, (prompt, max_tokens, priority) in enumerate(arrivals):
            one = sequence(f"{number}.{index}", prompt, max_tokens, priority=priority)
            live.append(one)
            subject.submit(one)
        if subject.busy:
            one_pass()
    for _ in range(5000):
        if not subject.busy:
            break
        one_pass()
    assert not live
