"""Orders to a rank of the same machine: how they come, and what neither end waits for."""

import itertools
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphpod_runtime.engine.ranks import rank_sockets
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.messages import Land, Leave, Load, Rouse
from graphpod_runtime.engine.ranks.rank_sockets import FirstEnds, Orders, OrdersIn, OrdersOut
from graphpod_runtime.wire.wakefulness import REHEARSAL_SECONDS
from tests.eventually import Eventually

LIMIT = 60.0


def is_late() -> bool:
    """Whether a thread gives orders later."""
    return any(thread.name == "late-orders" for thread in threading.enumerate())


@pytest.mark.parametrize("awake", [0.0, 60.0])
def test_orders_come_in_order_and_the_end_of_the_first_rank_ends_them(tmp_path: Path, awake: float) -> None:
    ends = FirstEnds(Meeting(tmp_path), 2)
    own = Orders(Meeting(tmp_path), 1, awake)
    for number in range(3):
        ends.send(Load(number, [], []))
    ends.send(Land())
    assert [own.next() for _ in range(4)] == [*(Load(number, [], []) for number in range(3)), Land()]
    ends.close()
    assert own.next() == Leave()


def test_a_rank_that_looks_for_orders_is_roused_meanwhile_and_sleeps_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time runs from the last order that it has carried out, however long that took."""
    ends = FirstEnds(Meeting(tmp_path), 2)
    own, looks = Orders(Meeting(tmp_path), 1, 0.05), itertools.count()
    ends.send(Land())
    assert own.next() == Land()
    assert own._line is not None
    line = own._line._line
    sleeps, slept = line.wait, list[float]()

    def sleeping(seconds: float) -> bool:
        slept.append(seconds)
        ends.send(Load(1, [], []))
        return sleeps(seconds)

    monkeypatch.setattr(line, "wait", sleeping)
    monkeypatch.setattr(rank_sockets, "time", SimpleNamespace(monotonic=lambda: next(looks) / 1000))
    roused = list(iter(own.next, Load(1, [], [])))
    assert roused == [Rouse()] * len(roused)
    assert 1 <= len(roused) <= 0.05 / REHEARSAL_SECONDS + 1
    assert slept == [rank_sockets.SLEEP_SECONDS]
    ends.close()


def test_a_rank_that_has_not_come_gets_nothing_and_the_first_one_hears_so(tmp_path: Path) -> None:
    ends = FirstEnds(Meeting(tmp_path), 2)
    with pytest.raises(BlockingIOError):
        ends.send(Land())
    ends.close()


def test_ranks_behind_one_that_has_not_come_get_their_orders(tmp_path: Path) -> None:
    """Those that have come leave with the first one, instead of being killed later."""
    ends = FirstEnds(Meeting(tmp_path), 4)
    own = [Orders(Meeting(tmp_path), rank) for rank in (1, 3)]
    for order in (Rouse(), Leave()):
        with pytest.raises(BlockingIOError):
            ends.send(order)
    assert [[one.next() for _ in range(2)] for one in own] == [[Rouse(), Leave()]] * 2
    ends.close()


def test_the_first_rank_does_not_wait_for_one_that_reads_nothing_and_all_of_it_arrives_though_it_sends_no_more(
    tmp_path: Path,
) -> None:
    """It may wait for that rank in a collective meanwhile, which needs the rest of the order to go there."""
    path = str(tmp_path / "rank-1")
    out, into = OrdersOut(path), OrdersIn(path)
    frames = [bytes([number]) * 2_000_000 for number in range(3)]
    for frame in frames:  # far more than a socket holds
        out.send(frame)
    came: list[bytes | None] = []
    reading = threading.Thread(target=lambda: came.extend(into.next() for _ in frames), daemon=True)
    reading.start()
    reading.join(LIMIT)
    assert came == frames
    out.send(b"more")
    assert into.next() == b"more"
    out.close()


def test_what_a_rank_that_has_gone_does_not_read_is_lost_and_no_thread_is_left(
    tmp_path: Path, eventually: Eventually
) -> None:
    path = str(tmp_path / "rank-1")
    out, into = OrdersOut(path), OrdersIn(path)
    out.send(bytes(2_000_000))
    into._line.close()

    eventually(lambda: not is_late())
    out.send(b"lost")
    out.close()


def test_closing_ends_the_thread_that_waits_for_a_rank_that_reads_nothing(
    tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That rank is stopped, and lives on."""
    monkeypatch.setattr(rank_sockets, "LATE_MS", 10)
    path, descriptors = str(tmp_path / "rank-1"), Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    out, into = OrdersOut(path), OrdersIn(path)
    out.send(bytes(2_000_000))
    assert is_late()
    out.close()
    eventually(lambda: not is_late())
    into._line.close()
    assert len(list(descriptors.iterdir())) <= before, "others may be closed meanwhile"


def test_an_order_is_read_in_the_thread_that_obeys_it(tmp_path: Path) -> None:
    """Each further thread in between is one more that may have to be woken."""
    before = set(Path("/proc/self/task").iterdir())
    out, into = OrdersOut(str(tmp_path / "rank-1")), OrdersIn(str(tmp_path / "rank-1"))
    out.send(b"an order")
    assert into.next() == b"an order"
    assert set(Path("/proc/self/task").iterdir()) <= before, "threads of other tests may end meanwhile"
    out.close()
