"""`status.graph.advice`: read once an hour, written when it changes, kept over restarts of operator and pods."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from graphpod_operator.api.status import MESSAGE_MAX
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.store import Store
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe import ladder_advisor
from graphpod_operator.observe.ladder_advisor import CONCURRENCY, PERIOD_SECONDS, LadderAdvisor, advised
from graphpod_operator.observe.ladder_use import phase_uses, samples
from graphpod_operator.status.write_throttle import DETAIL_SECONDS
from graphpod_policy import Phase
from tests.unit.operator.ladders import exposition
from tests.unit.operator.objects import inference_service, pod, report
from tests.unit.operator.world import HASH, StillClock, World

SERVING = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
GOOD = (4, 8, 16, 32) * 500
"""Rows of passes that today's ladder fits."""
THREES = (3,) * 2000
SEVENS = (7,) * 2000


def served(decode: Sequence[int], prefill: Sequence[int] = GOOD) -> bytes:
    return exposition({Phase.Prefill: prefill, Phase.Decode: decode})


def advice_of(world: World) -> dict[str, Any] | None:
    found: dict[str, Any] | None = world.service["status"]["graph"].get("advice")
    return found


async def ready(world: World) -> World:
    """A service that serves, whose turn to be read is an hour ahead at most."""
    await world.reconcile()
    world.put_pod(ready=True)
    world.ports.report = report(config_hash=HASH)
    world.cluster.put(Resource.Deployment, {**world.deployment, "status": SERVING})
    await world.settle()
    assert world.condition("Ready")[0] == "True"
    await world.advisor.sweep()
    assert world.ports.metrics_reads == 0
    return world


async def hour(world: World, sweeps: int = 6) -> int:
    """An hour of sweeps, each with what it leads to; the writes meanwhile."""
    before = len(world.cluster.writes)
    for _ in range(sweeps):
        world.clock.now += PERIOD_SECONDS / sweeps
        await world.advisor.sweep()
        await world.reconcile()
    return len(world.cluster.writes) - before


async def test_an_advice_is_read_once_an_hour_and_written_once(world: World) -> None:
    await ready(world)
    world.ports.exposition = served(THREES)
    assert await hour(world, sweeps=60) == 1
    assert world.ports.metrics_reads == 1
    found = advice_of(world)
    assert found is not None
    assert 3 in found["decode"]
    assert len(found["decode"]) == 4
    assert found["decode"][-1] == 8
    assert "prefill" not in found
    assert found["message"] == ("decode pads 25%, with the sizes here 0%; details: graphpod advise gisvc/demo -n ns")
    assert [await hour(world) for _ in range(5)] == [0] * 5
    assert world.ports.metrics_reads == 6


async def test_more_of_the_same_load_changes_nothing_and_another_load_does(world: World) -> None:
    await ready(world)
    world.ports.exposition = served(THREES)
    await hour(world)
    first = advice_of(world)
    world.ports.exposition = served((*THREES * 3, *SEVENS[:20]))
    assert await hour(world) == 0
    assert advice_of(world) == first
    world.ports.exposition = served((*THREES, *SEVENS * 9))
    assert await hour(world) == 1
    assert advice_of(world) != first
    world.ports.exposition = served((1, 2, 4, 8) * 5000)
    assert await hour(world) == 1
    assert advice_of(world) is None


async def test_a_pod_that_has_served_too_little_since_its_restart_keeps_the_advice(world: World) -> None:
    await ready(world)
    world.ports.exposition = served(THREES)
    await hour(world)
    first = advice_of(world)
    world.ports.exposition = served((3, 3), (4,))
    assert await hour(world) == 0
    assert advice_of(world) == first


async def test_the_next_operator_keeps_the_advice_that_it_finds(world: World) -> None:
    await ready(world)
    world.ports.exposition = served(THREES)
    await hour(world)
    before = len(world.cluster.writes)
    after = world.successor()
    await after.settle()
    await after.advisor.sweep()
    await after.settle()
    assert len(world.cluster.writes) == before
    assert await hour(after) == 0
    assert advice_of(after) is not None


async def test_another_configuration_has_no_advice_until_it_was_read(world: World) -> None:
    await ready(world)
    world.ports.exposition = served(THREES)
    await hour(world)
    await world.edit(graph={"sizes": {"decode": [3, 8]}})
    world.clock.now += DETAIL_SECONDS
    await world.settle()
    assert advice_of(world) is None


@pytest.mark.parametrize(
    "answer",
    [None, b"", b"graphpod_graph_requested_rows_bucket{} 1", served((3,) * 10, ()), served((1, 2, 4, 8) * 999)],
)
async def test_no_answer_too_little_and_a_good_ladder_write_nothing(world: World, answer: bytes | None) -> None:
    await ready(world)
    world.ports.exposition = answer
    assert await hour(world) == 0
    assert world.ports.metrics_reads == 1
    assert advice_of(world) is None


async def test_a_fault_of_ours_costs_one_advice_and_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await ready(world)
    world.ports.exposition = served(THREES)

    def broken(*_: object) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr(ladder_advisor, "advised", broken)
        assert await hour(world) == 0
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert await hour(world) == 1


async def test_a_service_that_is_not_ready_is_not_read(world: World) -> None:
    await world.reconcile()
    world.put_pod(ready=False)
    world.ports.exposition = served(THREES)
    await world.advisor.sweep()
    await hour(world)
    await hour(world)
    assert world.ports.metrics_reads == 0


@pytest.mark.parametrize(
    "forged",
    [
        {"message": "x" * 300},
        {"message": 3},
        {"message": "m", "decode": "all"},
        {"message": "m", "decode": [0]},
        {"message": "m", "decode": [1 << 40]},
        {"message": "m", "decode": list(range(1, 200))},
        {"decode": [1]},
        "advice",
    ],
)
async def test_a_forged_advice_is_taken_away(world: World, forged: Any) -> None:
    await ready(world)
    found = world.service
    status = {**found["status"], "graph": {**found["status"]["graph"], "advice": forged}}
    world.cluster.put(Resource.InferenceService, {**found, "status": status})
    world.clock.now += 1000
    await world.settle()
    assert advice_of(world) is None


def test_the_longest_message_fits_in_the_status() -> None:
    uses = phase_uses(samples(served(THREES, (3,) * 2000)))
    key = Key("n" * 63, "s" * 40)
    found = advised(key, uses, None)
    assert found is not None
    assert found.prefill is not None
    assert found.decode is not None
    assert len(found.message) <= MESSAGE_MAX - 8
    assert advised(key, uses, found) is found


class Crowd:
    """The pods of many services; counts who is read at a time."""

    def __init__(self) -> None:
        self.open = self.most = 0
        self.reads: list[str] = []

    async def metrics(self, pod: Pod) -> bytes:
        self.open += 1
        self.most = max(self.most, self.open)
        self.reads.append(pod.name)
        await asyncio.sleep(0)
        self.open -= 1
        return b""


async def test_the_reads_of_many_services_are_spread_over_the_hour() -> None:
    """1000 services, a sweep each half minute: each is read once, never more than a few in one sweep or at a time."""
    store, clock, port = Store(), StillClock(), Crowd()
    conditions = [{"type": "Ready", "status": "True", "reason": "Ready"}]
    for number in range(1000):
        raw = inference_service(f"s{number}", {"conditions": conditions, "graph": {"configHash": HASH}})
        raw["metadata"]["uid"] = f"uid-s{number}"
        store.observe(Service.of(raw))
        one = pod(f"p{number}", HASH, ready=True)
        one["metadata"]["labels"]["graphpod.dev/inferenceservice"] = f"s{number}"
        one["metadata"]["ownerReferences"][0]["name"] = f"s{number}-abc"
        store.observe(Pod.of(one))
    advisor = LadderAdvisor(port, store, clock)
    in_a_sweep = []
    await advisor.sweep()
    for _ in range(PERIOD_SECONDS // 30):
        clock.now += 30
        before = len(port.reads)
        await advisor.sweep()
        in_a_sweep.append(len(port.reads) - before)
    assert len(set(port.reads)) == len(port.reads) == 1000
    assert max(in_a_sweep) <= 30
    assert port.most <= CONCURRENCY
