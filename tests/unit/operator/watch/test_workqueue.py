"""The queue of keys: once in the queue, once in work, back after a pause."""

import asyncio
from itertools import pairwise

import pytest

from graphpod_operator.cache.key import Key
from graphpod_operator.watch.workqueue import FIRST_PAUSE, JITTER, LONGEST_PAUSE, KeyQueue

A, B = Key("ns", "a"), Key("ns", "b")


async def test_a_key_waits_at_most_once() -> None:
    added: list[int] = []
    queue = KeyQueue(added=lambda: added.append(1))
    for key in (A, A, B, A):
        queue.add(key)
    assert (queue.depth, len(added)) == (2, 2)
    assert [await queue.take(), await queue.take()] == [A, B]


async def test_a_key_in_work_is_not_given_out_again_but_comes_back() -> None:
    queue = KeyQueue()
    queue.add(A)
    assert await queue.take() == A
    queue.add(A)
    queue.add(A)
    assert (queue.depth, queue.active) == (0, 1)
    queue.done(A)
    assert (queue.depth, queue.active) == (1, 0)
    assert await queue.take() == A


async def test_a_worker_wakes_when_a_key_arrives() -> None:
    queue = KeyQueue()
    taking = asyncio.create_task(queue.take())
    for _ in range(3):  # until it waits for an arrival
        await asyncio.sleep(0)
    queue.add(A)
    assert await taking == A


async def test_everything_else_gets_its_turn_between_two_keys() -> None:
    turns: list[str] = []
    queue = KeyQueue()
    for number in range(5):
        queue.add(Key("ns", f"s{number}"))

    async def work() -> None:
        while queue.depth:
            queue.done(await queue.take())
            turns.append("key")

    async def others() -> None:
        while queue.depth:
            turns.append("others")
            await asyncio.sleep(0)

    await asyncio.gather(work(), others())
    assert ("key", "key") not in pairwise(turns)
    assert turns.count("key") == 5


async def test_of_two_times_the_earlier_counts() -> None:
    queue = KeyQueue()
    queue.add_after(A, 1000)
    queue.add_after(A, 0)
    queue.add_after(A, 2000)
    assert await asyncio.wait_for(queue.take(), 60) == A


async def test_an_arrival_replaces_the_wait() -> None:
    queue = KeyQueue()
    queue.add_after(A, 0)
    queue.add(A)
    assert await queue.take() == A
    queue.done(A)
    for _ in range(3):
        await asyncio.sleep(0)
    assert queue.depth == 0


async def test_pauses_double_up_to_the_longest_and_start_over_after_a_success() -> None:
    queue = KeyQueue()
    pauses = [queue.add_failed(A) for _ in range(12)]
    for number, pause in enumerate(pauses):
        full = min(LONGEST_PAUSE, FIRST_PAUSE * 2**number)
        assert full * (1 - JITTER) <= pause <= full
    queue.forget(A)
    assert queue.add_failed(A) <= FIRST_PAUSE
    queue.add(A)  # cancels the timer, so that the loop ends clean


async def test_the_longest_work_is_told() -> None:
    queue = KeyQueue()
    assert queue.longest_busy() == 0.0
    queue.add(A)
    await queue.take()
    assert queue.longest_busy() >= 0.0
    with pytest.raises(KeyError):
        queue.done(B)


async def test_a_key_that_met_a_newer_object_comes_back_at_once_and_the_next_time_after_a_pause() -> None:
    queue = KeyQueue()
    queue.add(A)
    for depth in (1, 0):
        assert await queue.take() == A
        queue.add_conflicted(A)
        queue.done(A)
        assert queue.depth == depth
    queue.add(A)  # cancels the timer, so that the loop ends clean


async def test_what_a_user_asked_for_goes_first_and_others_wait_for_three_of_it_at_most() -> None:
    queue, asked = KeyQueue(), [Key("ns", f"asked-{number}") for number in range(7)]
    for key in (A, B):
        queue.add(key)
    for key in asked:
        queue.add(key, first=True)
    taken = [await queue.take() for _ in range(queue.depth)]
    assert taken == [*asked[:3], A, *asked[3:6], B, asked[6]]


async def test_what_a_user_asks_for_goes_first_also_where_it_waits_already() -> None:
    queue = KeyQueue()
    queue.add(A)
    queue.add(B)
    queue.add(B, first=True)
    queue.add(B, first=True)
    queue.add(A)
    assert queue.depth == 2
    assert [await queue.take(), await queue.take()] == [B, A]


async def test_what_a_user_asks_for_goes_first_also_where_it_is_to_come_back_already() -> None:
    queue = KeyQueue()
    queue.add(A)
    assert await queue.take() == A
    queue.add(A)
    queue.add(B)
    queue.add(A, first=True)
    assert queue.depth == 1
    queue.done(A)
    assert [await queue.take(), await queue.take()] == [A, B]


async def test_what_a_user_asked_for_while_it_was_in_work_goes_first_when_that_ends() -> None:
    queue = KeyQueue()
    queue.add(A)
    assert await queue.take() == A
    queue.add(A, first=True)
    queue.add(B)
    queue.done(A)
    assert [await queue.take(), await queue.take()] == [A, B]


async def test_a_key_that_rests_comes_back_for_its_user_or_when_woken_not_for_what_is_reported() -> None:
    queue = KeyQueue()
    queue.add(A)
    await queue.take()
    queue.add(A)  # reported while it is worked on
    queue.add_failed(A, rests=True)
    queue.done(A)
    queue.add(A)
    assert queue.depth == 0
    queue.add(A, first=True)
    assert await queue.take() == A

    queue.add_failed(A, rests=True)
    queue.done(A)
    queue.add(A)
    assert queue.depth == 0
    queue.wake()
    assert await queue.take() == A
    queue.forget(A)
    queue.done(A)
    queue.add(A)
    assert queue.depth == 1


async def test_a_key_whose_user_asked_meanwhile_does_not_rest() -> None:
    queue = KeyQueue()
    queue.add(A)
    await queue.take()
    queue.add(A, first=True)  # its user changed it while it was worked on
    queue.add_failed(A, rests=True)
    queue.done(A)
    assert await queue.take() == A

    queue.add(A)  # reported during the work that the user asked for
    queue.forget(A)
    queue.done(A)
    assert queue.depth == 1


async def test_a_key_that_rests_comes_back_after_its_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphpod_operator.watch.workqueue.FIRST_PAUSE", 0.01)
    queue = KeyQueue()
    queue.add(A)
    await queue.take()
    queue.add_failed(A, rests=True)
    queue.done(A)
    assert await asyncio.wait_for(queue.take(), 60) == A
