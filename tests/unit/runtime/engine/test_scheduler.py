"""The scheduler over a real page allocator and invented tokens."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.schedule.batch import Batch, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import DoesNotFit, QueueFull, Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.wire.messages import FinishReason
from tests.tries import tries

END = 0
LIMITS = Limits(max_model_len=40, max_batch=3, prefill_chunk=8, page_size=4, max_queue=2)


def scheduler(pages: int = 30, limits: Limits = LIMITS) -> Scheduler:
    """`pages` that sequences can own."""
    return Scheduler(PageAllocator(pages + 1), limits, (END,))


def sequence(id: str, prompt: int, max_tokens: int = 5, **more: Any) -> Sequence:
    """A prompt of `prompt` tokens, none of which is the end."""
    return Sequence(id, [7] * prompt, prompt, max_tokens, **more)


def step(subject: Scheduler, token: Callable[[Sequence], int] = lambda _: 9) -> tuple[Batch | None, dict[str, Any]]:
    """One pass: its batch, and how each sequence that ended in it ended."""
    batch = subject.next()
    if batch is None:
        return None, {}
    if isinstance(batch, DecodeBatch):
        tokens = [token(sequence) for sequence in batch.sequences]
    else:
        tokens = [token(chunk.sequence) if chunk.last else -1 for chunk in batch.chunks]
    progress = subject.advance(batch, Yielded(tokens))
    return batch, {entry.sequence.id: entry.finish for entry in progress if entry.finish}


def spans(batch: Batch | None) -> list[tuple[str, int, int]]:
    """The chunks of a prefill batch."""
    assert isinstance(batch, PrefillBatch)
    return [(chunk.sequence.id, chunk.start, chunk.end) for chunk in batch.chunks]


def test_a_long_prompt_is_prefilled_in_chunks_and_the_next_prompt_shares_the_last() -> None:
    subject = scheduler()
    subject.submit(sequence("long", 18))
    subject.submit(sequence("as long", 18))
    assert spans(step(subject)[0]) == [("long", 0, 8)]
    assert spans(step(subject)[0]) == [("long", 8, 16)]
    assert spans(step(subject)[0]) == [("long", 16, 18), ("as long", 0, 6)]
    subject.abort("as long")
    batch, _ = step(subject)
    assert isinstance(batch, DecodeBatch)
    assert [entry.id for entry in batch.sequences] == ["long"]


def test_a_sequence_joins_those_that_decode_as_soon_as_its_prompt_is_done() -> None:
    subject = scheduler()
    subject.submit(sequence("first", 2, max_tokens=20))
    step(subject)
    step(subject)
    subject.submit(sequence("second", 2, max_tokens=20))
    assert spans(step(subject)[0]) == [("second", 0, 2)]
    batch, _ = step(subject)
    assert isinstance(batch, DecodeBatch)
    assert [entry.id for entry in batch.sequences] == ["first", "second"]


@pytest.mark.parametrize(
    ("more", "token", "finish", "generated"),
    [
        ({"max_tokens": 3}, 9, FinishReason.Length, 3),
        ({"max_tokens": 100}, 9, FinishReason.Length, 38),  # the model's own limit
        ({}, END, FinishReason.Stop, 1),
        ({"ignore_eos": True, "max_tokens": 4}, END, FinishReason.Length, 4),
        ({"stop_ids": (9,)}, 9, FinishReason.Stop, 1),
    ],
)
def test_a_sequence_ends_for_its_reason(more: dict[str, Any], token: int, finish: FinishReason, generated: int) -> None:
    subject, one = scheduler(), sequence("one", 2, **more)
    subject.submit(one)
    ended: dict[str, Any] = {}
    while not ended:
        _, ended = step(subject, lambda _: token)
    assert ended == {"one": finish}
    assert len(one.tokens) - one.prompt_len == generated
    assert (subject.busy, subject.usage) == (False, 0)


def test_when_pages_run_out_the_newest_is_set_back_and_computed_again() -> None:
    subject = scheduler(pages=7)
    old, new = sequence("old", 8, max_tokens=20), sequence("new", 8, max_tokens=20)
    subject.submit(old)
    subject.submit(new)
    while not subject.preemptions:
        step(subject)
    assert (subject.running, subject.waiting, new.pages, new.computed) == (1, 1, [], 0)
    kept = list(new.tokens)
    assert len(kept) > new.prompt_len
    ended: dict[str, Any] = {}
    while subject.busy:
        ended |= step(subject)[1]
    assert ended == {"old": FinishReason.Length, "new": FinishReason.Length}
    assert new.tokens[: len(kept)] == kept
    assert len(new.tokens) == 28


def test_what_arrives_in_every_pass_leaves_every_second_pass_to_those_that_decode() -> None:
    """It once had one token in 2000 passes."""
    subject = scheduler(pages=300, limits=replace(LIMITS, max_model_len=4000, max_queue=600))
    old = sequence("old", 2, max_tokens=1000)
    subject.submit(old)
    step(subject)
    for number in range(600):
        subject.submit(sequence(str(number), 7, max_tokens=1))
        step(subject)
        assert len(old.tokens) - old.prompt_len == 1 + (number // 2 + 1)


def test_chunks_of_a_long_prompt_take_turns_with_decode_passes() -> None:
    subject = scheduler()
    subject.submit(sequence("short", 2, max_tokens=20))
    step(subject)
    subject.submit(sequence("long", 20, max_tokens=2))
    kinds = [type(step(subject)[0]) for _ in range(8)]
    assert kinds == [DecodeBatch, PrefillBatch] * 3 + [DecodeBatch] * 2


def test_a_prompt_on_its_way_is_set_back_before_anything_that_decodes() -> None:
    """Its chunks wait for decode passes, in which those that decode need pages."""
    limits = Limits(max_model_len=64, max_batch=2, prefill_chunk=4, page_size=1, max_queue=2)
    subject = scheduler(pages=40, limits=limits)
    old, new = sequence("old", 4, max_tokens=30), sequence("new", 32, max_tokens=2)
    subject.submit(old)
    step(subject)
    subject.submit(new)
    while not subject.preemptions:
        step(subject)
    assert (new.pages, new.computed) == ([], 0)
    assert old.pages
    ended: dict[str, Any] = {}
    while subject.busy:
        ended |= step(subject)[1]
    assert ended == {"old": FinishReason.Length, "new": FinishReason.Length}


def test_a_row_without_a_token_ends_its_sequence_alone_and_its_pages_are_not_clean() -> None:
    allocator = PageAllocator(31)
    subject = Scheduler(allocator, LIMITS, (END,))
    sequences = [sequence(id, 2) for id in "abc"]
    for one in sequences:
        subject.submit(one)
    step(subject)
    owned = sorted(sequences[1].pages)
    batch = subject.next()
    assert isinstance(batch, DecodeBatch)
    progress = subject.advance(batch, Yielded([9, -1, 9]))
    assert [entry.finish for entry in progress] == [None, FinishReason.Error, None]
    assert "no finite logits" in (progress[1].message or "")
    assert allocator.take_unclean() == owned
    assert allocator.take_unclean() == []
    assert (subject.nonfinite, subject.running) == (1, 2)
    assert -1 not in sequences[1].tokens


@pytest.mark.parametrize(("passes", "clean"), [(0, True), (1, False), (3, True)])
def test_pages_of_a_prompt_that_goes_before_its_end_are_not_clean(passes: int, clean: bool) -> None:
    """None of its rows was looked at."""
    allocator = PageAllocator(31)
    subject, one = Scheduler(allocator, LIMITS, (END,)), sequence("one", 14)
    subject.submit(one)
    for _ in range(passes):
        step(subject)
    owned = sorted(one.pages)
    subject.abort("one")
    assert allocator.take_unclean() == ([] if clean else owned)


@pytest.mark.parametrize("passes", [0, 1, 3, 5])
def test_abort_frees_every_page_at_every_stage(passes: int) -> None:
    subject = scheduler()
    subject.submit(sequence("one", 18, max_tokens=20))
    for _ in range(passes):  # waiting, in the middle of its prompt, decoding
        step(subject)
    assert subject.abort("one")
    assert (subject.busy, subject.running, subject.waiting, subject.usage) == (False, 0, 0, 0)
    assert not subject.abort("one")
    assert subject.next() is None


def test_the_queue_is_bounded() -> None:
    subject = scheduler()
    for index in range(LIMITS.max_batch + LIMITS.max_queue):
        subject.submit(sequence(str(index), 2))
    with pytest.raises(QueueFull, match="3 requests run and 2 wait"):
        subject.submit(sequence("one too many", 2))
    assert subject.abort("0")
    subject.submit(sequence("now there is room", 2))


@pytest.mark.parametrize(("prompt", "max_tokens", "pages"), [(0, 1, 30), (40, 1, 30), (2, 0, 30), (10, 20, 5)])
def test_what_can_never_run_is_refused(prompt: int, max_tokens: int, pages: int) -> None:
    subject = scheduler(pages)
    with pytest.raises(DoesNotFit):
        subject.submit(sequence("one", prompt, max_tokens))
    assert not subject.busy


def test_an_open_id_cannot_be_opened_again() -> None:
    subject = scheduler()
    subject.submit(sequence("one", 2))
    with pytest.raises(ValueError, match="open already"):
        subject.submit(sequence("one", 2))


REQUESTS = st.tuples(st.just("submit"), st.integers(1, 30), st.integers(1, 30))
EVENTS = st.one_of(REQUESTS, st.tuples(st.just("abort"), st.integers(0, 40)), st.just(("pass",)), st.just(("pass",)))


@tries(300)
@given(pages=st.integers(10, 24), events=st.lists(EVENTS, max_size=60), ends=st.randoms(use_true_random=False))
def test_no_page_leaks_and_every_request_ends_once(pages: int, events: list[Any], ends: Any) -> None:
    allocator = PageAllocator(pages + 1)
    subject = Scheduler(allocator, LIMITS, (END,))
    live: dict[str, Sequence] = {}
    finished: list[str] = []
    submitted: list[str] = []

    latest: list[Batch] = []

    def one_pass() -> None:
        decode = bool(subject._decoding)
        batch = subject.next()
        if batch is None:
            return
        if latest and isinstance(latest[-1], PrefillBatch) and decode:
            assert isinstance(batch, DecodeBatch), "two prefill passes in turn while a sequence decodes"
        latest.append(batch)
        if isinstance(batch, PrefillBatch):
            assert 0 < sum(chunk.end - chunk.start for chunk in batch.chunks) <= LIMITS.prefill_chunk
            ran = [chunk.sequence for chunk in batch.chunks]
            for chunk in batch.chunks:
                assert chunk.start == chunk.sequence.computed < chunk.end <= len(chunk.sequence.tokens)
                assert len(chunk.sequence.pages) * LIMITS.page_size >= chunk.end
        else:
            ran = list(batch.sequences)
            for entry in ran:
                assert entry.computed == len(entry.tokens) - 1
                assert len(entry.pages) * LIMITS.page_size >= len(entry.tokens)
        assert len({entry.id for entry in ran}) == len(ran) <= LIMITS.max_batch
        for progress in subject.advance(batch, Yielded([ends.choice([END, 5, 6, 7, 8, -1]) for _ in ran])):
            if progress.finish:
                finished.append(progress.sequence.id)
                del live[progress.sequence.id]

    def check_pages() -> None:
        owned = [page for entry in live.values() for page in entry.pages]
        assert len(owned) == len(set(owned))
        assert allocator.available + len(owned) == allocator.capacity
        assert subject.running + subject.waiting == len(live)

    for number, (kind, *numbers) in enumerate(events):
        if kind == "submit":
            entry = sequence(str(number), *numbers)
            try:
                subject.submit(entry)
            except (QueueFull, DoesNotFit):
                continue
            live[entry.id] = entry
            submitted.append(entry.id)
        elif kind == "abort":
            id = str(numbers[0])
            assert subject.abort(id) == (id in live)
            if live.pop(id, None):
                finished.append(id)
        else:
            one_pass()
        check_pages()
    turns = 0
    while subject.busy:
        one_pass()
        check_pages()
        turns += 1
        assert turns < 2000, "the scheduler does not advance"
    assert sorted(finished) == sorted(submitted)
    assert allocator.available == allocator.capacity


def test_256_slots_on_a_cache_of_three_contexts_wait_are_set_back_and_all_end() -> None:
    """The defaults of a GPU with little memory left: slots are plenty, pages are what is short."""
    limits = Limits(max_model_len=64, max_batch=256, prefill_chunk=128, page_size=4, max_queue=256)
    subject = scheduler(pages=3 * 64 // 4, limits=limits)
    wanted = {str(number): 20 + number % 44 for number in range(300)}
    for id, prompt in wanted.items():
        subject.submit(sequence(id, prompt, max_tokens=64))
    ended: dict[str, Any] = {}
    most_running = 0
    for _ in range(50_000):
        batch, finished = step(subject)
        if batch is None:
            break
        most_running = max(most_running, subject.running)
        ended |= finished
    assert ended == dict.fromkeys(wanted, FinishReason.Length)
    assert subject.preemptions > 0
    assert 1 < most_running < 10, "pages, not slots, are the limit"
    assert (subject.usage, subject.waiting, subject.running) == (0, 0, 0)
