"""The order of admission."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.waiting import TURN, WaitingQueue


def request(id: str, priority: int = 0) -> Sequence:
    return Sequence(id, [1], 1, 1, priority=priority)


def admitted(queue: WaitingQueue) -> list[str]:
    """All, one after the other."""
    ids = []
    while queue:
        first = next(iter(queue))
        queue.admit(first)
        ids.append(first.id)
    return ids


def test_equal_priorities_are_admitted_as_they_came_and_lower_ones_earlier() -> None:
    queue = WaitingQueue()
    for id, priority in (("a", 0), ("b", 0), ("late", 5), ("early", -1), ("c", 0)):
        queue.append(request(id, priority))
    assert [one.id for one in queue] == ["early", "a", "b", "c", "late"]
    assert len(queue) == 5


def test_what_was_set_back_goes_first_the_latest_first() -> None:
    queue = WaitingQueue()
    queue.append(request("early", -9))
    for id in ("newer", "older"):
        queue.set_back(request(id, 5))
    assert admitted(queue) == ["older", "newer", "early"]


def test_what_is_removed_is_not_there() -> None:
    queue, one, other = WaitingQueue(), request("one"), request("other")
    queue.append(one)
    queue.set_back(other)
    for entry in (one, other):
        assert entry in queue
        queue.remove(entry)
        assert entry not in queue
    assert (len(queue), list(queue)) == (0, [])


def test_one_of_four_admissions_goes_to_the_oldest() -> None:
    queue = WaitingQueue()
    for id in ("old", "second"):
        queue.append(request(id, 9))
    for number in range(8):
        queue.append(request(str(number)))
    assert admitted(queue) == ["0", "1", "2", "old", "3", "4", "5", "second", "6", "7"]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=80))
def test_a_request_that_came_after_k_others_is_admitted_with_the_4_times_k_plus_1th_at_the_latest(
    events: list[tuple[int, bool]],
) -> None:
    queue, waits = WaitingQueue(), dict[str, list[int]]()
    admissions = 0

    def admit() -> Any:
        nonlocal admissions
        first = next(iter(queue))
        queue.admit(first)
        admissions += 1
        since, ahead = waits.pop(first.id)
        assert admissions - since <= TURN * (ahead + 1)

    for number, (priority, full) in enumerate(events):
        waits[str(number)] = [admissions, len(queue)]
        queue.append(request(str(number), priority))
        if full:
            admit()
    while queue:
        admit()
    assert not waits
