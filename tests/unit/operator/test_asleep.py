"""The annotations graphpod.dev/sleep and graphpod.dev/reload, from the edit to orders, status and events, over pods in
memory that obey as an engine does."""

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from graphpod_operator.cache.pod import Pod
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.warmup_poller import Unreachable
from tests.unit.operator.objects import NAMESPACE, inference_service, planned, pod, report
from tests.unit.operator.world import KEY, Ports, World

AWAKE = {"state": "Awake", "idle": False, "freedBytes": 0, "modelRevision": "", "refused": None, "problem": None}
GIB = 1 << 30
SPEC: dict[str, Any] = {"engine": {"sleep": True, "reload": True}}


class Engines(Ports):
    """Pods that obey at once, unless `holds`; `problems` are why a command of a pod is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.problems: dict[tuple[str, str], str] = {}
        self.unreachable = ""

    async def order(self, pod: Pod, path: str) -> None:
        self.orders.append((pod.name, path))
        if self.unreachable:
            raise Unreachable(f"pod {pod.name}: {self.unreachable}")
        words = urlsplit(path)
        command, revision = words.path.removeprefix("/"), parse_qs(words.query).get("revision", [""])[0]
        if self.holds:
            self.say(pod.name, state={"sleep": "FallingAsleep", "wake": "Waking", "reload": "Reloading"}[command])
        else:
            self.obey(pod.name, command, revision)

    def obey(self, name: str, command: str, revision: str = "") -> None:
        refused = revision or None
        if (problem := self.problems.get((name, command))) is not None:
            stays = command == "wake" or self.reports[name]["sleep"]["state"] == "Asleep"
            before = "Asleep" if stays else "Awake"
            self.say(name, state=before, problem=problem, refused=refused)
            return
        done = {"state": "Asleep", "freedBytes": GIB} if command == "sleep" else {"state": "Awake"}
        named = {"modelRevision": revision} if revision else {}
        self.say(name, problem=None, refused=None, **done, **named)

    def say(self, name: str, **changes: Any) -> None:
        self.reports[name]["sleep"] = self.reports[name]["sleep"] | changes


class Fleet(World):
    """A service of some pods, whose kubelets and Deployment follow what the engines say."""

    def __init__(self, *names: str, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        super().__init__(ports=Engines())
        self.names, self.spec = names, {**SPEC, "replicas": len(names), **spec}
        manifest = inference_service(**self.spec)
        manifest["metadata"]["annotations"] = annotations or {}
        self.cluster.put(Resource.InferenceService, manifest)
        self.form = planned(**self.spec)
        self.container = dict.fromkeys(names, "containerd://1")

    @property
    def engines(self) -> Engines:
        assert isinstance(self.ports, Engines)
        return self.ports

    async def started(self) -> "Fleet":
        await self.relist()
        await self.reconcile()
        for name in self.names:
            self.engines.reports[name] = report(name, self.form.config_hash, sleep=dict(AWAKE))
        await self.settle()
        return self

    def kubelet(self) -> None:
        """Readiness follows the engines, and the Deployment counts the pods."""
        states = {name: said["sleep"] for name, said in self.engines.reports.items()}
        serves = {name: one["state"] == "Awake" or one["idle"] for name, one in states.items()}
        for name, ready in serves.items():
            made = pod(name, self.form.config_hash, self.form.template, ready=ready, container=self.container[name])
            there = self.cluster.objects.get((Resource.Pod, NAMESPACE, name), {})
            if there.get("status") != made["status"]:
                self.cluster.put(Resource.Pod, made)
        status = {
            "observedGeneration": self.deployment["metadata"].get("generation", 1),
            "replicas": len(states),
            "updatedReplicas": len(states),
            "readyReplicas": sum(serves.values()),
            "availableReplicas": sum(serves.values()),
            "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}],
        }
        if self.deployment.get("status") != status:
            self.cluster.put(Resource.Deployment, {**self.deployment, "status": status})

    async def settle(self, seconds: float = 1.0) -> None:
        for _ in range(4):
            self.kubelet()
            await self.relist()
            await self.reconcile()
            self.clock.now += seconds

    async def annotate(self, **values: str | None) -> None:
        manifest = self.service
        annotations = {**(manifest["metadata"].get("annotations") or {})}
        for name, value in values.items():
            annotations.pop(f"graphpod.dev/{name}", None)
            annotations |= {} if value is None else {f"graphpod.dev/{name}": value}
        manifest["metadata"]["annotations"] = annotations
        self.cluster.put(Resource.InferenceService, manifest)
        await self.settle()

    @property
    def weights(self) -> dict[str, Any]:
        """`status.weights`."""
        found: dict[str, Any] = self.service["status"]["weights"]
        return found

    def orders(self) -> list[str]:
        """What was sent since the last call: pod and path."""
        sent, self.engines.orders = self.engines.orders, []
        return [f"{name} {path}" for name, path in sent]


async def test_a_service_sleeps_by_its_annotation_and_wakes_when_it_goes() -> None:
    world = await Fleet("a", "b").started()
    assert world.condition("Ready") == ("True", "Ready")
    assert "weights" not in world.service["status"]

    await world.annotate(sleep="true")
    assert world.orders() == ["a /sleep?wait=0", "b /sleep?wait=0"]
    status = world.service["status"]
    assert (status["phase"], world.condition("Ready")) == ("Sleeping", ("False", "Sleeping"))
    assert world.condition("Asleep") == ("True", "Asleep")
    assert world.condition("Available") == ("False", "NothingServes")
    assert not {"Reconciling", "Stalled"}.intersection(row["type"] for row in status["conditions"])
    assert status["weights"] == {
        "asleep": "2/2", "freedBytes": 2 * GIB,
        "pods": [{"name": "a", "state": "Asleep"}, {"name": "b", "state": "Asleep"}],
    }  # fmt: skip
    assert world.message("Ready") == (
        "2 of 2 pods sleep; 2.0 GiB of device memory are free; to wake it: kubectl -n ns annotate "
        "inferenceservices.graphpod.dev demo graphpod.dev/sleep-"
    )
    assert len(world.told("Sleeping")) == 1

    await world.annotate(sleep=None)
    assert world.orders() == ["a /wake?wait=0", "b /wake?wait=0"]
    assert world.condition("Ready") == ("True", "Ready")
    assert "weights" not in world.service["status"]
    assert "Asleep" not in {row["type"] for row in world.service["status"]["conditions"]}


async def test_a_service_at_rest_costs_no_order_no_reading_and_no_write() -> None:
    for annotations in ({}, {"graphpod.dev/sleep": "true"}, {"graphpod.dev/reload": "v1"}):
        world = await Fleet("a", "b", annotations=annotations).started()
        await world.settle()
        await world.settle(40.0)
        world.cluster.writes.clear()
        world.orders()
        reads = world.ports.warmup_reads
        await world.settle(600.0)
        assert (world.orders(), world.cluster.writes, world.ports.warmup_reads) == ([], [], reads)


async def test_the_next_operator_asks_nothing_of_pods_that_sleep() -> None:
    world = await Fleet("a", "b", annotations={"graphpod.dev/sleep": "true"}).started()
    assert world.condition("Ready") == ("False", "Sleeping")
    world.orders()
    other = world.successor()
    other.ports = world.ports
    await other.relist()
    world.cluster.writes.clear()
    await other.reconcile()
    assert (world.orders(), world.cluster.writes) == ([], [])


async def test_a_pod_that_restarts_while_its_service_sleeps_is_put_to_sleep_again() -> None:
    world = await Fleet("a", "b", annotations={"graphpod.dev/sleep": "true"}).started()
    world.orders()
    world.container["b"] = "containerd://2"
    world.engines.reports["b"]["sleep"] = dict(AWAKE)
    await world.settle()
    assert world.orders() == ["b /sleep?wait=0"]
    assert world.condition("Ready") == ("False", "Sleeping")


async def test_pods_of_a_rollout_sleep_once_it_has_ended() -> None:
    world = await Fleet("a", annotations={"graphpod.dev/sleep": "true"}).started()
    world.orders()
    world.engines.reports["a"]["sleep"] = dict(AWAKE)
    world.kubelet()
    earlier = pod("old", "earlier", "earlier", ready=True)
    world.cluster.put(Resource.Pod, earlier)
    for _ in range(3):
        await world.relist()
        await world.reconcile()
    assert world.orders() == []
    assert world.condition("Asleep") == ("False", "SleepPending")
    del world.cluster.objects[Resource.Pod, NAMESPACE, "old"]
    await world.settle(700.0)
    assert world.orders() == ["a /sleep?wait=0"]


async def test_a_pod_with_open_requests_is_asked_once_and_read_less_and_less_often() -> None:
    world = await Fleet("a").started()
    world.engines.holds = True
    await world.annotate(sleep="true")
    reads = world.ports.warmup_reads
    for _ in range(60):
        world.clock.now += 10.0
        await world.reconcile()
    assert world.orders() == ["a /sleep?wait=0"]
    assert 15 <= world.ports.warmup_reads - reads <= 27  # 0.5, 1, 2, 4, 8, 16 s, then every 30 s
    assert world.condition("WorkloadAvailable") == ("False", "FallingAsleep")
    await world.annotate(sleep=None)
    assert world.orders() == ["a /wake?wait=0"]


async def test_a_pod_that_cannot_sleep_serves_on_and_is_asked_less_and_less_often() -> None:
    world = await Fleet("a").started()
    world.engines.problems["a", "sleep"] = "the host has too little free memory for a copy of the weights"
    await world.annotate(sleep="true")
    assert world.condition("Asleep") == ("False", "SleepRefused")
    assert "too little free memory" in world.message("Asleep")
    assert world.condition("Ready") == ("True", "Ready")
    assert len(world.told("SleepRefused")) == 1
    for _ in range(60):
        world.clock.now += 60.0
        await world.reconcile()
    assert 8 <= len(world.orders()) <= 13  # 10 s, 20 s … 10 min


async def test_a_pod_that_could_not_sleep_for_weeks_is_asked_still() -> None:
    world = await Fleet("a").started()
    world.engines.problems["a", "sleep"] = "the host has too little free memory for a copy of the weights"
    await world.annotate(sleep="true")
    found = world.store.service(KEY)
    assert found is not None
    ordered = world.reconciler._memories.of(found).ordered["containerd://1"]
    ordered["sleep", ""] = replace(ordered["sleep", ""], times=5000)
    await world.settle(700.0)
    assert world.orders() == ["a /sleep?wait=0"] * 4
    assert world.condition("Asleep") == ("False", "SleepRefused")


async def test_a_pod_that_neither_wakes_nor_takes_the_new_weights_is_asked_for_both_less_and_less_often() -> None:
    world = await Fleet("a", annotations={"graphpod.dev/sleep": "true"}).started()
    world.orders()
    world.engines.problems["a", "wake"] = "the weights were replaced meanwhile; POST /reload reads new ones"
    world.engines.problems["a", "reload"] = "3 of 120 tensors are missing"
    await world.annotate(sleep=None, reload="v2")
    for _ in range(120):
        world.clock.now += 5.0
        await world.reconcile()
    orders = world.orders()
    assert {order: 5 <= orders.count(order) <= 14 for order in orders} == {
        "a /wake?wait=0": True,
        "a /reload?wait=0&revision=v2": True,
    }
    world.engines.problems.clear()
    await world.annotate(reload="v3")
    await world.settle(700.0)
    await world.settle()
    assert world.condition("Ready") == ("True", "Ready")


async def test_sleeping_pods_are_woken_while_a_rollout_that_began_meanwhile_is_stuck() -> None:
    world = await Fleet("a", annotations={"graphpod.dev/sleep": "true"}).started()
    world.orders()
    manifest = world.service
    manifest["spec"]["engine"]["maxModelLen"] = 128
    manifest["metadata"] |= {"annotations": {}, "generation": 2}
    world.cluster.put(Resource.InferenceService, manifest)
    for _ in range(3):
        await world.relist()
        await world.reconcile()
        world.clock.now += 1.0
    assert world.orders() == ["a /wake?wait=0"]
    world.kubelet()
    await world.relist()
    await world.reconcile()
    assert world.condition("Available") == ("True", "Serving")


async def test_a_pod_that_cannot_wake_says_why_and_is_asked_again() -> None:
    world = await Fleet("a", "b", annotations={"graphpod.dev/sleep": "true"}).started()
    world.orders()
    world.engines.problems["b", "wake"] = "the device has no room for weights and KV cache, others may have it"
    await world.annotate(sleep=None)
    assert world.condition("Ready") == ("False", "WakeRefused")
    assert "pod b: the device has no room" in world.message("Ready")
    assert world.condition("Available") == ("True", "Serving")
    world.engines.problems.clear()
    await world.settle(10.0)
    assert world.condition("Ready") == ("True", "Ready")
    assert world.orders() == ["a /wake?wait=0", "b /wake?wait=0", "b /wake?wait=0"]


async def test_a_pod_that_is_not_reached_is_asked_again_later() -> None:
    world = await Fleet("a").started()
    world.engines.unreachable = "POST http://10.0.0.1:8001/sleep answered 404: Not Found"
    await world.annotate(sleep="true")
    assert world.condition("Asleep") == ("False", "SleepRefused")
    assert "answered 404" in world.message("Asleep")
    assert world.orders() == ["a /sleep?wait=0"]
    world.engines.unreachable = ""
    await world.settle(10.0)
    assert world.orders() == ["a /sleep?wait=0"]
    assert world.condition("Ready") == ("False", "Sleeping")


@pytest.mark.parametrize("key", [False, True])
async def test_a_service_that_did_not_opt_in_is_not_asked(key: bool) -> None:
    engine = {"sleep": True, "apiKeySecretRef": {"name": "keys"}} if key else {}
    world = await Fleet("a", annotations={"graphpod.dev/sleep": "true"}, engine=engine).started()
    assert world.orders() == []
    assert world.condition("Asleep") == ("False", "SleepRefused")
    assert ("apiKeySecretRef" if key else "spec.engine.sleep") in world.message("Asleep")
    assert world.condition("Ready") == ("True", "Ready")


async def test_a_paused_service_gets_no_order() -> None:
    world = await Fleet("a", annotations={"graphpod.dev/sleep": "true"}).started()
    assert world.orders() == ["a /sleep?wait=0"]
    await world.annotate(paused="true", sleep=None)
    assert world.orders() == []


async def test_an_autoscaler_keeps_the_number_of_pods_that_sleep_and_no_budget_holds_up_a_drain() -> None:
    world = await Fleet("a", "b", autoscaling={"min": 2, "max": 9, "target": 4}).started()
    where = NAMESPACE, "demo"

    def child(kind: Resource) -> dict[str, Any]:
        found: dict[str, Any] = world.cluster.objects[kind, *where]["spec"]
        return found

    assert "behavior" not in child(Resource.HorizontalPodAutoscaler)
    await world.annotate(sleep="true")
    held = {"selectPolicy": "Disabled"}
    assert child(Resource.HorizontalPodAutoscaler)["behavior"] == {"scaleUp": held, "scaleDown": held}
    assert child(Resource.PodDisruptionBudget)["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert world.condition("ScalingReady") == ("False", "AutoscalerHeld")
    assert world.condition("Ready") == ("False", "Sleeping")
    await world.annotate(sleep=None)
    assert "behavior" not in child(Resource.HorizontalPodAutoscaler)
    assert child(Resource.PodDisruptionBudget)["unhealthyPodEvictionPolicy"] == "IfHealthyBudget"


async def test_new_weights_come_to_one_pod_after_another_and_the_status_names_them() -> None:
    world = await Fleet("a", "b").started()
    world.engines.holds = True
    await world.annotate(reload="2026-11-26 b")
    assert world.orders() == ["a /reload?wait=0&revision=2026-11-26%20b"]
    assert world.condition("Ready") == ("False", "Reloading")
    assert world.condition("Available") == ("True", "Serving")
    world.engines.obey("a", "reload", "2026-11-26 b")
    await world.settle(40.0)
    assert world.orders() == ["b /reload?wait=0&revision=2026-11-26%20b"]
    world.engines.obey("b", "reload", "2026-11-26 b")
    await world.settle(40.0)
    assert world.condition("ModelAvailable") == ("True", "Reloaded")
    assert world.condition("Ready") == ("True", "Ready")
    assert [one["revision"] for one in world.service["status"]["weights"]["pods"]] == ["2026-11-26 b"] * 2
    assert len(world.told("Reloaded")) == 1
    assert world.orders() == []


async def test_weights_that_a_pod_refuses_end_the_reload_and_the_pods_serve_on() -> None:
    world = await Fleet("a", "b").started()
    world.engines.problems["a", "reload"] = "/model: 3 of 120 tensors are missing, first lm_head.weight"
    await world.annotate(reload="v2")
    await world.settle(700.0)
    assert world.orders() == ["a /reload?wait=0&revision=v2"]
    assert world.condition("Ready") == ("False", "ReloadRefused")
    assert world.service["status"]["phase"] == "Stalled"
    assert "pod a: /model: 3 of 120 tensors are missing" in world.message("Ready")
    assert world.condition("Available") == ("True", "Serving")
    assert len(world.told("ReloadRefused")) == 1
    await world.annotate(paused="true")
    assert world.condition("ModelAvailable") == ("False", "ReloadRefused"), "a pause hides no refusal"
    await world.annotate(paused=None)
    world.engines.problems.clear()
    await world.annotate(reload="v3")
    await world.settle(40.0)
    assert world.orders() == [f"{name} /reload?wait=0&revision=v3" for name in "ab"]
    assert world.condition("Ready") == ("True", "Ready")


async def test_weights_that_are_downloaded_are_not_replaced_in_place() -> None:
    world = await Fleet("a", annotations={"graphpod.dev/reload": "v2"}, engine={}).started()
    assert (world.orders(), world.condition("Ready")) == ([], ("False", "ReloadRefused"))
    assert "spec.engine.reload is not true" in world.message("Ready")


async def test_pods_that_sleep_get_new_weights_once_they_are_awake() -> None:
    world = await Fleet("a", annotations={"graphpod.dev/sleep": "true"}).started()
    world.orders()
    await world.annotate(reload="v2")
    assert (world.orders(), world.condition("ModelAvailable")) == ([], ("False", "ReloadPending"))
    assert world.condition("Ready") == ("False", "Sleeping")
    await world.annotate(sleep=None)
    await world.settle()
    assert world.orders() == ["a /wake?wait=0", "a /reload?wait=0&revision=v2"]
    assert world.condition("Ready") == ("True", "Ready")


async def test_a_pod_that_somebody_put_to_sleep_by_hand_is_woken() -> None:
    world = await Fleet("a", "b").started()
    world.engines.say("a", state="Asleep", freedBytes=GIB)
    await world.settle()
    assert world.orders() == ["a /wake?wait=0"]
    assert world.condition("Ready") == ("True", "Ready")


async def test_a_paused_service_says_that_its_pods_get_no_orders_and_obeys_once_it_is_not_paused() -> None:
    world = await Fleet("a", "b").started()
    await world.annotate(paused="true", sleep="true")
    assert world.orders() == []
    assert world.condition("Asleep") == ("False", "SleepPaused")
    assert world.message("Asleep").startswith(
        "0 of 2 pods sleep, and the annotation graphpod.dev/paused holds back the orders to pods; to continue: kubectl"
    )
    assert world.condition("Ready") == ("True", "Ready")
    await world.annotate(paused=None)
    assert world.orders() == ["a /sleep?wait=0", "b /sleep?wait=0"]
    assert world.condition("Asleep") == ("True", "Asleep")
    await world.annotate(paused="true", sleep=None, reload="v2")
    assert world.orders() == []
    assert world.condition("Ready") == ("False", "SleepPaused")
    assert "2 of 2 pods sleep, and the annotation graphpod.dev/paused" in world.message("WorkloadAvailable")
    assert "Reconciling" not in {row["type"] for row in world.service["status"]["conditions"]}
    await world.annotate(paused=None)
    await world.settle(40.0)
    assert world.condition("Ready") == ("True", "Ready")


async def test_a_paused_service_says_that_it_gets_no_new_weights_and_serves_on() -> None:
    world = await Fleet("a").started()
    await world.annotate(paused="true", reload="v2")
    assert world.orders() == []
    assert world.condition("ModelAvailable") == ("True", "Loaded")
    assert world.message("ModelAvailable").startswith(
        "0 of 1 pods serve the weights of 'v2', and the annotation graphpod.dev/paused holds back the orders"
    )
    await world.annotate(paused=None)
    assert world.condition("ModelAvailable") == ("True", "Reloaded")


async def test_the_status_names_the_order_it_is_about_and_what_every_pod_serves() -> None:
    """So a script that waits for a second reload does not take the end of the first for it."""
    world = await Fleet("a", "b").started()
    await world.annotate(reload="v1")
    await world.settle(5.0)
    assert (world.weights["reload"], world.weights["revision"]) == ("v1", "v1")
    world.engines.holds = True
    await world.annotate(reload="v2")
    assert (world.weights["reload"], world.weights.get("revision")) == ("v2", "v1")
    world.engines.obey("a", "reload", "v2")
    await world.settle(5.0)
    assert world.weights.get("revision") is None
    world.engines.obey("b", "reload", "v2")
    await world.settle(5.0)
    assert world.weights["revision"] == "v2"
    world.engines.holds = False
    world.engines.problems["a", "reload"] = "3 of 120 tensors are missing"
    await world.annotate(reload="v3")
    assert (world.weights["reload"], world.weights["revision"]) == ("v3", "v2")
    assert world.condition("ModelAvailable") == ("False", "ReloadRefused")
