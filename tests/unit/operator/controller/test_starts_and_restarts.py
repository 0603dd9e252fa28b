"""Pods that start, and an operator that starts beside pods that serve: when they are asked, and what status says."""

import asyncio

import pytest

from graphpod_operator.cache.pod import Pod
from graphpod_operator.kube.resources import CHILDREN, Resource
from graphpod_operator.observe import warmup_poller
from graphpod_operator.observe.warmup_poller import Warmups
from graphpod_operator.observe.warmup_report import BORNE_SECONDS, MISSES_BORNE
from tests.unit.operator.objects import pod, report
from tests.unit.operator.world import HASH, KEY, Ports, World


async def test_warm_ups_are_polled_until_they_end(world: World) -> None:
    await world.reconcile()
    world.put_pod()
    world.ports.report = report(config_hash=HASH, state="Capturing", captured=(3, 0))
    assert await world.reconcile() is not None
    assert world.condition("GraphsCaptured") == ("False", "Capturing")
    world.ports.report = report(config_hash=HASH)
    assert await world.reconcile() is None
    assert world.condition("GraphsCaptured") == ("True", "Captured")


async def test_progress_alone_is_written_seldom(world: World) -> None:
    await world.reconcile()
    world.put_pod()
    for captured in range(1, 5):
        world.ports.report = report(config_hash=HASH, state="Capturing", captured=(captured, 0))
        assert await world.reconcile() is not None, "it comes back to write what it held back"
    assert world.kinds().count("status") == 2
    world.clock.now += 61
    await world.reconcile()
    assert world.kinds().count("status") == 3


async def test_a_start_costs_few_writes_however_long_it_takes(world: World) -> None:
    await world.reconcile()
    world.put_pod(running=False)
    await world.reconcile()
    world.put_pod()
    world.ports.report = report(config_hash=HASH, state="Loading", captured=(0, 0))
    await world.reconcile()
    for captured in range(27):
        world.clock.now += 9
        sizes = (min(captured, 22), max(0, captured - 22))
        world.ports.report = report(config_hash=HASH, state="Capturing", captured=sizes)
        await world.reconcile()
    world.ports.report = report(config_hash=HASH, state="SelfChecking")
    await world.reconcile()
    world.put_pod(ready=True)
    world.ports.report = report(config_hash=HASH)
    await world.reconcile()
    assert world.condition("GraphsCaptured") == ("True", "Captured")
    assert len(world.cluster.writes) + len(world.cluster.events) <= len(CHILDREN) + 8


async def test_a_silent_admin_port_is_asked_less_often_after_a_while(world: World) -> None:
    await world.reconcile()
    world.put_pod()
    pauses = [await world.reconcile() for _ in range(20)]
    assert pauses[0] is not None
    assert pauses[-1] is not None
    assert pauses[-1] > pauses[0]
    assert world.condition("GraphsCaptured") == ("Unknown", "EngineUnreachable")


async def test_a_resync_reads_terminal_warm_ups_again(world: World) -> None:
    await world.reconcile()
    world.put_pod(ready=True)
    world.ports.report = report(config_hash=HASH)
    await world.reconcile()
    world.ports.report = report(config_hash=HASH, decode="Disabled", captured=(22, 0))
    await world.reconcile()
    assert world.condition("GraphsCaptured") == ("True", "Captured")
    world.reconciler.reread([KEY])
    await world.reconcile()
    assert world.condition("GraphsCaptured") == ("True", "Degraded")


async def test_an_operator_that_restarts_hears_the_pods_that_serve_before_it_tells_of_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = pod(config_hash=HASH, ready=True)
    world.cluster.put(Resource.Pod, serving)
    world.ports.report = report(config_hash=HASH)
    await world.relist()
    await world.reconcile()
    before = world.condition("Available")
    world.cluster.writes.clear()

    answer, told = asyncio.Event(), asyncio.Event()

    class Slow(Ports):
        async def warmup(self, pod: Pod) -> bytes:
            await answer.wait()
            return await world.ports.warmup(pod)

    monkeypatch.setattr(warmup_poller, "PATIENCE", 0.0)
    restarted = World()
    restarted.cluster, restarted.warmups = world.cluster, Warmups(Slow(), lambda key: told.set())
    restarted.reconciler = restarted.make_reconciler()
    await restarted.relist()
    await restarted.reconcile()
    assert world.cluster.writes == []
    answer.set()
    await told.wait()
    await restarted.reconcile()
    assert world.condition("Available") == before == ("True", "Serving")
    assert world.cluster.writes == []


async def test_one_missed_answer_after_a_restart_leaves_the_service_ready(world: World) -> None:
    world.cluster.put(Resource.Pod, pod(config_hash=HASH, ready=True))
    world.ports.report = report(config_hash=HASH)
    await world.relist()
    await world.reconcile()
    before = world.condition("Available")
    world.cluster.writes.clear()
    restarted = world.successor()
    world.ports.report, proved = None, world.ports.report
    await restarted.relist()
    assert await restarted.reconcile() is not None, "it is asked again"
    assert world.cluster.writes == []
    world.ports.report = proved
    await restarted.reconcile()
    assert world.cluster.writes == []
    assert world.condition("Available") == before == ("True", "Serving")


async def test_a_pod_that_stays_silent_after_a_restart_is_told_in_the_end(world: World) -> None:
    world.cluster.put(Resource.Pod, pod(config_hash=HASH, ready=True))
    world.ports.report = report(config_hash=HASH)
    await world.relist()
    await world.reconcile()
    restarted = world.successor()
    world.ports.report = None
    await restarted.relist()
    for _ in range(MISSES_BORNE):
        await restarted.reconcile()
    assert world.condition("GraphsCaptured") == ("True", "Captured"), "an engine may be about to end, or to listen"
    restarted.clock.now += BORNE_SECONDS
    await restarted.reconcile()
    assert world.condition("GraphsCaptured") == ("Unknown", "EngineUnreachable")
