"""The store of responses: bounded in count, bytes and age, whatever comes."""

from dataclasses import dataclass, field

import pytest

from graphpod_runtime.front.openai.responses import store
from graphpod_runtime.front.openai.responses.store import Kept, ResponseStore


def kept(size: int = 0) -> Kept:
    return Kept(b"x" * size, b"", b"", "completed", False)


@dataclass
class Runs:
    """A response that has not ended."""

    background: bool = True
    cancelled: list[bool] = field(default_factory=list)

    def so_far(self) -> Kept:
        return kept()

    def cancel(self) -> None:
        self.cancelled.append(True)


def test_ten_thousand_responses_leave_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = ResponseStore(lambda: 0.0)
    running = Runs()
    subject.begin("running", running)
    for number in range(10_000):
        subject.keep(f"resp_{number}", kept())
    assert len(subject) == store.MAX_RESPONSES + 1
    assert subject.find("resp_9999") is not None
    assert subject.find("resp_0") is None
    assert subject.find("running") is running


def test_large_responses_are_bounded_in_bytes_and_the_count_of_bytes_is_exact() -> None:
    subject = ResponseStore(lambda: 0.0)
    for number in range(100):
        subject.keep(f"resp_{number}", kept(8 << 20))
        assert subject.bytes <= store.MAX_BYTES
    assert len(subject) == 7
    for number in range(100):
        subject.delete(f"resp_{number}")
    assert (subject.bytes, len(subject)) == (0, 0)


def test_what_is_too_old_is_gone_and_its_bytes_with_it() -> None:
    now = 0.0
    subject = ResponseStore(lambda: now)
    subject.keep("resp_0", kept(5))
    now = store.MAX_AGE_SECONDS - 1
    subject.keep("resp_1", kept(6))
    assert subject.find("resp_0") is not None
    now += 2
    assert subject.find("resp_0") is None
    assert subject.bytes == kept(6).size


def test_one_that_was_deleted_while_it_ran_is_cancelled_and_not_kept() -> None:
    subject, running = ResponseStore(lambda: 0.0), Runs()
    subject.begin("resp_0", running)
    subject.delete("resp_0")
    subject.end("resp_0", kept())
    assert (running.cancelled, subject.find("resp_0"), len(subject)) == ([True], None, 0)
