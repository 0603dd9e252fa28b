"""The operator's start: while its lists fail, and when the Lease came late."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from graphpod_operator.cache.store import Store
from graphpod_operator.kube.clock import SystemClock
from graphpod_operator.kube.cluster import ServerRefused
from graphpod_operator.kube.resources import Resource
from graphpod_operator.manager import run
from graphpod_operator.manager.run import Readiness
from graphpod_operator.watch.informer import Informer
from graphpod_operator.watch.workqueue import KeyQueue
from tests.unit.operator.world import StillClock


class Refusing:
    """A cluster that refuses one list in the very moment of a signal; the other lists take their time."""

    def __init__(self, signalled: "asyncio.Task[None]") -> None:
        self._signalled = signalled

    async def list(self, resource: Resource, *_: object) -> None:
        if resource is not Resource.InferenceService:
            await asyncio.sleep(0.01)
        elif not self._signalled.cancelling():
            # Between this list's end and the moment its failure is handed on.
            asyncio.get_running_loop().call_soon(self._signalled.cancel)
        raise ServerRefused(403, "no right to list")


def test_a_signal_that_comes_with_a_failing_list_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the lists made side by side, the failure would be handed on, and the cancellation be lost."""
    monkeypatch.setattr(run, "FILL_RETRY_SECONDS", 0.01)

    async def start() -> None:
        task = asyncio.current_task()
        assert task is not None
        nothing = SimpleNamespace()
        informer = Informer(Store(), KeyQueue())
        await run._fill(Refusing(task), informer, (), nothing, Readiness())  # type: ignore[arg-type]

    async def bounded() -> None:
        task = asyncio.create_task(start())
        done, _ = await asyncio.wait({task}, timeout=60)
        task.cancel()
        assert done, "it went on filling"
        assert task.cancelled()

    asyncio.run(bounded())


@pytest.mark.parametrize(("waited", "lists"), [(run.STALE_SECONDS, 0), (run.STALE_SECONDS + 1, 1)], ids=str)
async def test_who_waited_long_for_the_lease_lists_again_before_it_works(waited: float, lists: int) -> None:
    leadership, clock, listed = SimpleNamespace(won=asyncio.Event()), StillClock(), list[str]()

    async def refill() -> None:
        listed.append("everything")

    leading = asyncio.create_task(run._lead(leadership, clock, refill))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    clock.now += waited
    leadership.won.set()
    await leading
    assert len(listed) == lists


def test_the_clock_of_the_lease_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOCK_MONOTONIC does not, so a leader that slept would believe its last renewal to be fresh."""
    awake = time.clock_gettime(time.CLOCK_BOOTTIME)
    slept = {time.CLOCK_BOOTTIME: awake + 3600, time.CLOCK_MONOTONIC: awake}
    monkeypatch.setattr(time, "clock_gettime", slept.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: awake)
    assert SystemClock().monotonic() == awake + 3600
