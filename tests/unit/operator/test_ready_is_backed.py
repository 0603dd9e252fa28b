"""Contract 13, the oracle: whenever a status with Ready=True is written, every endpoint pod had told, in this very
container, that its warm-up ended well under the planned configuration.
"""

import json
import random
from typing import Any

import pytest

from graphpod_operator.cache.pod import Pod
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.warmup_poller import Unreachable
from tests.unit.operator.objects import NAMESPACE, inference_service, pod, report
from tests.unit.operator.world import HASH, World

STEPS = 30
WITHIN_SECONDS = 10.0
SERVICE = (Resource.InferenceService, NAMESPACE, "demo")
Told = tuple[str, str, str]
"""(pod uid, container, configuration)."""


class Engines:
    """Admin ports of engines that are in a state each, and what each of their containers has ever told for good."""

    def __init__(self) -> None:
        self.reports: dict[str, dict[str, Any] | None] = {}
        self.proved: set[Told] = set()

    async def warmup(self, pod: Pod) -> bytes:
        body = self.reports.get(pod.name)
        if body is None:
            raise Unreachable(f"pod {pod.name}: no answer")
        if body["terminal"] and body["state"] == "Ready" and body["podUID"] == pod.uid:
            self.proved.add((pod.uid, pod.container, body["configHash"]))
        return json.dumps(body).encode()


class Story:
    """Pods come, load, capture, serve, die, lie and fall silent, in no order; spec and operator change in between."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.engines = Engines()
        self.world = World(ports=self.engines)  # type: ignore[arg-type]
        self.world.cluster.put(Resource.InferenceService, inference_service(replicas=2))
        self.ready = 0
        self._number = 0
        self._watch_statuses()

    def _watch_statuses(self) -> None:
        cluster = self.world.cluster
        write = cluster.apply_status

        async def judged(body: Any) -> Any:
            self._judge(body["status"])
            return await write(body)

        cluster.apply_status = judged  # type: ignore[method-assign]

    def _judge(self, status: dict[str, Any]) -> None:
        conditions = {row["type"]: row["status"] for row in status["conditions"]}
        if conditions["Ready"] != "True":
            return
        self.ready += 1
        endpoints = [one for one in self._pods() if one.ready and not one.deleting]
        assert endpoints, "ready without an endpoint"
        planned = status["graph"]["configHash"]
        unproved = [one.name for one in endpoints if (one.uid, one.container, planned) not in self.engines.proved]
        assert not unproved, f"{unproved} never proved {planned}"

    def _pods(self) -> list[Pod]:
        return [Pod.of(raw) for (kind, *_), raw in self.world.cluster.objects.items() if kind is Resource.Pod]

    def happen(self) -> None:
        """One thing, by chance."""
        pods = self._pods()
        if len(pods) < 2 or self.chance.random() < 0.1:
            return self._add()
        one = self.chance.choice(pods)
        happening = self.chance.choice(
            [self._go_on, self._go_on, self._go_on, self._restart, self._hush, self._lie, self._vanish]
        )
        happening(one)
        return None

    def _add(self) -> None:
        self._number += 1
        deployment = self.world.cluster.objects.get((Resource.Deployment, NAMESPACE, "demo"))
        if deployment is None:
            return
        marks = deployment["spec"]["template"]["metadata"]["annotations"]
        name = f"demo-abc-{self._number}"
        self._put(name, "c-0", False, marks["graphpod.dev/config-hash"], marks["graphpod.dev/template"])
        self.engines.reports[name] = None

    def _put(self, name: str, container: str, ready: bool, config_hash: str, template: str) -> None:
        made = pod(name, config_hash, ready=ready, container=container, template=template)
        self.world.cluster.put(Resource.Pod, made)
        serving = sum(one.ready for one in self._pods())
        deployment = self.world.deployment
        count = len(self._pods())
        counts = {"replicas": count, "updatedReplicas": count, "readyReplicas": serving, "availableReplicas": serving}
        deployment["status"] = {"observedGeneration": 10**6, **counts}
        self.world.cluster.put(Resource.Deployment, deployment)

    def _go_on(self, one: Pod) -> None:
        now = self.engines.reports.get(one.name)
        states = ["Loading", "Capturing", "SelfChecking", "Ready"]
        following = 0 if now is None else min(3, states.index(now["state"]) + 1)
        self.engines.reports[one.name] = report(one.name, one.config_hash, states[following])
        if now is not None and now["state"] == "Ready":
            self._put(one.name, one.container, True, one.config_hash, one.template)

    def _restart(self, one: Pod) -> None:
        self.engines.reports[one.name] = None
        self._put(one.name, f"{one.container}+", False, one.config_hash, one.template)

    def _call_ready(self, one: Pod) -> None:
        """The kubelet's word alone: the engine has told nothing."""
        self._put(one.name, one.container, True, one.config_hash, one.template)

    def _hush(self, one: Pod) -> None:
        self.engines.reports[one.name] = None

    def _lie(self, one: Pod) -> None:
        """Ready to its kubelet, and another pod's word to the operator."""
        self.engines.reports[one.name] = report("somebody-else", one.config_hash)
        self._put(one.name, one.container, True, one.config_hash, one.template)

    def _vanish(self, one: Pod) -> None:
        del self.world.cluster.objects[Resource.Pod, NAMESPACE, one.name]

    async def tell(self) -> float:
        """The operator hears of it and looks, until it has nothing more to do; the seconds that took."""
        await self.world.relist()
        passed = 0.0
        while (pause := await self.world.reconcile()) is not None and passed < WITHIN_SECONDS:
            self.world.clock.now += pause
            passed += pause
        return passed


@pytest.mark.parametrize("seed", range(4))
async def test_every_ready_that_is_written_is_backed_by_terminal_readings_of_all_endpoints(seed: int) -> None:
    story = Story(seed)
    await story.tell()
    for step in range(STEPS):
        story.happen()
        if step % 13 == 12:
            await story.world.edit(replicas=2, engine={"maxBatch": 8 + step})
        await story.tell()
    for one in story._pods():
        story._vanish(one)
    for _ in range(2):
        story._add()
    for _ in range(6):
        for one in story._pods():
            story._go_on(one)
    await story.tell()
    assert story.ready > 0, "the story has a happy end"
    assert story.world.condition("Ready")[0] == "True"
    for happening in (story._restart, story._call_ready):
        for one in story._pods():
            happening(one)
        await story.tell()
    assert story.world.condition("Ready")[0] != "True", "containers that were never heard"


@pytest.mark.parametrize("silent", [1, 3, 40], ids=lambda misses: f"{misses} misses")
async def test_an_engine_that_answers_at_last_is_told_within_ten_seconds(world: World, silent: int) -> None:
    world.cluster.put(Resource.Pod, pod(config_hash=HASH, ready=True))
    await world.relist()
    pause: float | None = None
    for _ in range(silent):
        pause = await world.reconcile()
        assert pause is not None
        world.clock.now += pause
    assert pause is not None
    assert pause + 2.0 <= WITHIN_SECONDS, "the read itself may take two"
    world.ports.report = report(config_hash=HASH)
    await world.reconcile()
    assert world.condition("GraphsCaptured") == ("True", "Captured")
