"""The collector of cycles rests while a process imports and loads, and no longer."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from graphpod_runtime.engine.start.collector import PausedCollector
from graphpod_runtime.wire.report import StartStage


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For each freeze, whether the collector was on."""
    seen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: seen.append(gc.isenabled()))
    yield seen
    gc.enable()


class Cycle:
    """One that only the collector frees."""

    def __init__(self) -> None:
        self.itself = self


def test_it_rests_until_the_weights_are_there_and_leaves_alone_what_was_made_until_then(frozen: list[bool]) -> None:
    collector = PausedCollector()
    collector.note({StartStage.Import: 2.0})
    collector.note({StartStage.Import: 2.0})
    assert (gc.isenabled(), frozen) == (False, [False])
    collector.note({StartStage.Import: 2.0, StartStage.Load: 4.0})
    assert (gc.isenabled(), frozen) == (True, [False, False])


def test_what_a_load_leaves_in_cycles_is_freed_before_anything_is_set_aside() -> None:
    """Such a cycle may hold tensors: set aside, it would hold them as long as the process lives."""
    collector = PausedCollector()
    try:
        collector.note({StartStage.Import: 2.0})
        left = weakref.ref(Cycle())
        collector.note({StartStage.Import: 2.0, StartStage.Load: 4.0})
        assert left() is None
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.enable()


def test_it_does_not_end_the_pause_of_a_capture(frozen: list[bool]) -> None:
    collector = PausedCollector()
    collector.note({StartStage.Load: 4.0})
    gc.disable()
    collector.note({StartStage.Load: 4.0, StartStage.Buffers: 1.0})
    collector.resume()
    assert (gc.isenabled(), frozen) == (False, [False])


def test_a_start_without_stages_ends_it_too(frozen: list[bool]) -> None:
    PausedCollector().resume()
    assert (gc.isenabled(), frozen) == (True, [False])
