"""Services whose replicas run on several nodes: a group of pods is one replica, made by a LeaderWorkerSet."""

import base64
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from graphpod_operator.cache.child import DeploymentRollout
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.explain.diff import differences, lines
from graphpod_operator.explain.live import _made
from graphpod_operator.install.installation import Installation
from graphpod_operator.install.network_access import Access
from graphpod_operator.kube.absent_kinds import not_served
from graphpod_operator.kube.cluster import ServerRefused
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.plan.capture_failure_annotation import died
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.downloads import Weights
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.pod import group_key
from graphpod_operator.revisions.garbage_collection import PRUNE_SECONDS
from graphpod_operator.status.group_findings import find_no_surge
from tests.unit.operator.objects import IMAGES, INSTALLED, NAMESPACE, inference_service, outcome, planned, pod, report
from tests.unit.operator.world import World

LWS = Resource.LeaderWorkerSet
PLACE = LWS, NAMESPACE, "demo-group"
TWO: dict[str, Any] = {"parallelism": {"pipeline": 2, "nodes": 2}}
ONE: dict[str, Any] = {"parallelism": {"pipeline": 2}}
ACCESS = Access.read(json.dumps({"admin": [{"podSelector": {}}], "http": []}))
REPLACE = {"rollout": {"strategy": "Replace"}}


def the(wanted: Desired, resource: Resource) -> dict[str, Any]:
    (body,) = [child.body for child in wanted.children if child.resource is resource]
    return dict(body)


def group(wanted: Desired) -> dict[str, Any]:
    template: dict[str, Any] = the(wanted, LWS)["spec"]["leaderWorkerTemplate"]
    return template


def part(index: int, wanted: Desired, **made: Any) -> dict[str, Any]:
    """A pod of the first group, as the controllers of LeaderWorkerSets and StatefulSets make it."""
    name = "demo-group-0" if index == 0 else f"demo-group-0-{index}"
    raw = pod(name, wanted.config_hash, wanted.template, **made)
    raw["metadata"]["labels"] = {
        "graphpod.dev/inferenceservice": "demo",
        "leaderworkerset.sigs.k8s.io/group-index": "0",
        "leaderworkerset.sigs.k8s.io/worker-index": str(index),
    }
    owner = {"kind": "StatefulSet", "name": "demo-group" if index == 0 else "demo-group-0"}
    raw["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "uid": "sts", "controller": True, **owner}]
    return raw


def goes(raw: dict[str, Any]) -> dict[str, Any]:
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return raw


def ended(code: int, message: str = "") -> dict[str, Any]:
    """Of a container that ran again after this end."""
    return {"lastState": {"terminated": {"exitCode": code, "reason": "Error", "message": message}}}


def test_a_group_has_a_pod_for_each_node_and_every_pod_its_place_from_the_controller() -> None:
    wanted = planned(**TWO)
    made = group(wanted)
    assert (made["size"], made["restartPolicy"]) == (2, "RecreateGroupOnPodRestart")
    leader, worker = made["leaderTemplate"], made["workerTemplate"]
    for template in (leader, worker):
        (engine,) = template["spec"]["containers"]
        assert engine["command"][-4:] == [
            *("--leader", "$(LWS_LEADER_ADDRESS):29500", "--node-index", "$(LWS_WORKER_INDEX)")
        ]
    (front,), (ranks,) = leader["spec"]["containers"], worker["spec"]["containers"]
    assert front.keys() - ranks.keys() == {"ports", "startupProbe", "readinessProbe", "livenessProbe"}
    assert all(front[name] == value for name, value in ranks.items())
    assert leader["spec"]["shareProcessNamespace"], "process 1 of a container that has just begun takes no SIGTERM"
    marks = [template["metadata"]["annotations"] for template in (leader, worker)]
    assert marks[0] == marks[1]
    assert marks[0]["graphpod.dev/template"] == wanted.template
    assert json.loads(the(wanted, Resource.ConfigMap)["data"]["engine.json"])["features"]["nodes"] == 2
    assert not [child for child in wanted.children if child.resource is Resource.Deployment]


def environment(template: dict[str, Any]) -> list[dict[str, Any]]:
    env: list[dict[str, Any]] = template["spec"]["containers"][0]["env"]
    return env


def test_all_pods_of_a_services_groups_take_one_key_from_a_secret_that_no_other_service_has() -> None:
    def references(uid: str) -> list[dict[str, Any]]:
        manifest = inference_service(**TWO)
        manifest["metadata"]["uid"] = uid
        found = desire(PlanInput(Service.of(manifest), Installation(IMAGES, access=ACCESS)))
        assert isinstance(found, Desired)
        templates = [group(found)[name] for name in ("leaderTemplate", "workerTemplate")]
        return [one for template in templates for one in environment(template) if one["name"] == "GRAPHPOD_GROUP_KEY"]

    one, same = references("11-22")
    other, _ = references("33-44")
    assert one == same != other
    assert one.keys() == {"name", "valueFrom"}, "no value: who may read pods may not have it"
    assert one["valueFrom"]["secretKeyRef"]["name"].startswith("demo-group-key-")
    assert "GRAPHPOD_GROUP_KEY" not in json.dumps(the(planned(**ONE), Resource.Deployment))


def secrets_of(world: World) -> dict[str, dict[str, Any]]:
    return {name: body for (kind, _, name), body in world.cluster.objects.items() if kind is Resource.Secret}


def asked_for(world: World) -> list[str]:
    return [name for kind, name in world.cluster.writes if kind == "create Secret"]


async def test_the_key_is_random_made_before_the_pods_and_never_again(world: World, caplog: Any) -> None:
    caplog.set_level("DEBUG")
    await grouped(world)
    ((name, made),) = secrets_of(world).items()
    kinds = [kind for kind, _ in world.cluster.writes]
    assert kinds.index("create Secret") < kinds.index("LeaderWorkerSet")
    assert (made["type"], made["immutable"]) == ("Opaque", True)
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("InferenceService", "demo", True)
    key = base64.b64decode(made["data"]["key"]).decode()
    assert len(key) == 64
    shown = caplog.text + json.dumps(world.service) + json.dumps(world.cluster.events)
    assert key not in shown
    assert made["data"]["key"] not in shown
    reference = group(planned(**TWO))["leaderTemplate"]
    assert [
        one["valueFrom"]["secretKeyRef"] for one in environment(reference) if one["name"] == "GRAPHPOD_GROUP_KEY"
    ] == [{"name": name, "key": "key"}]

    await world.reconcile()
    successor = world.successor()
    successor.discovery.served.add(LWS)
    await successor.optional.look()
    await successor.relist()
    await successor.reconcile()
    assert asked_for(world) == [name], "a quiet service, and the next operator, ask for nothing"
    await world.edit(**TWO, engine={"maxBatch": 3})
    await world.relist()
    await world.reconcile()
    assert asked_for(world) == [name, name]
    assert secrets_of(world) == {name: made}, "another rendering has the same key"


async def test_a_key_that_was_deleted_is_made_again_once_a_pod_misses_it(world: World) -> None:
    wanted = await grouped(world)
    ((name, made),) = secrets_of(world).items()
    del world.cluster.objects[Resource.Secret, NAMESPACE, name]
    message = f'secret "{name}" not found'
    waits = {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": message}}}
    await see(world, wanted, part(0, wanted, running=False, engine=waits), part(1, wanted))
    assert secrets_of(world)[name]["data"] != made["data"]
    assert {row["type"] for row in world.service["status"]["conditions"]}.isdisjoint({"Stalled"})
    assert world.condition("WorkloadAvailable") == ("False", "Starting"), "no step is for the user to take"


async def test_another_secret_that_a_group_misses_is_for_its_user_to_create(world: World) -> None:
    wanted = await grouped(world)
    waits = {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "mine" not found'}}}
    await see(world, wanted, part(0, wanted, running=False, engine=waits), part(1, wanted))
    assert world.condition("WorkloadAvailable") == ("False", "ReferenceNotFound")


async def test_groups_of_an_earlier_version_keep_pods_and_key_until_they_adopt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rendering is kept, with the key in the pods' environment."""
    with monkeypatch.context() as earlier:
        earlier.setattr(group_key, "variable", lambda owner: {"name": "GRAPHPOD_GROUP_KEY", "value": "0" * 64})
        await grouped(world)
    before = world.cluster.objects[PLACE]
    assert not secrets_of(world)
    upgraded = world.successor()
    upgraded.discovery.served.add(LWS)
    await upgraded.optional.look()
    await upgraded.relist()
    await upgraded.reconcile()
    assert (world.cluster.objects[PLACE], secrets_of(world)) == (before, {})
    status, reason = upgraded.condition("EngineUpdateAvailable")
    assert (status, reason) == ("True", "NewEngine")
    revision = re.search(r"revision ([0-9a-f]+)", upgraded.message("EngineUpdateAvailable"))
    assert revision is not None
    service = world.cluster.objects[Resource.InferenceService, NAMESPACE, "demo"]
    metadata = {**service["metadata"], "annotations": {"graphpod.dev/adopt": revision[1]}}
    world.cluster.put(Resource.InferenceService, {**service, "metadata": metadata})
    await upgraded.relist()
    await upgraded.reconcile()
    assert world.cluster.objects[PLACE] != before
    assert len(secrets_of(world)) == 1


def test_what_an_update_changes_names_the_variable_of_the_key_and_does_not_show_it() -> None:
    """People copy it into tickets. Pods of an earlier version had it in their environment."""
    found, earlier = planned(**TWO), planned(**TWO)
    assert isinstance(found, Desired)
    workload = json.loads(json.dumps(earlier.workload))
    env = environment(workload["template"])
    (key,) = [one for one in env if one["name"] == "GRAPHPOD_GROUP_KEY"]
    del key["valueFrom"]
    key["value"] = "not to be seen"
    rows = list(differences("", _made(replace(earlier, workload=workload)), _made(found)))
    assert {row.path.partition("GROUP_KEY")[0] for row in rows} == {"pod.containers.engine.env.GRAPHPOD_"}
    assert "not to be seen" not in "\n".join(lines(rows))
    assert "demo-group-key-" in "\n".join(lines(rows))


def test_requests_go_to_leaders_and_the_policy_and_the_budget_are_about_all_pods() -> None:
    found = Service.of(inference_service(replicas=2, **TWO))
    wanted = desire(PlanInput(found, Installation(IMAGES, access=ACCESS)))
    assert isinstance(wanted, Desired)
    leader, worker = (group(wanted)[name]["metadata"]["labels"] for name in ("leaderTemplate", "workerTemplate"))
    selected = the(wanted, Resource.Service)["spec"]["selector"].items()
    assert selected <= leader.items()
    assert not selected <= worker.items()

    policy, budget = the(wanted, Resource.NetworkPolicy)["spec"], the(wanted, Resource.PodDisruptionBudget)["spec"]
    both = {
        "matchLabels": {"app.kubernetes.io/instance": "demo"},
        "matchExpressions": [
            {"key": "app.kubernetes.io/name", "operator": "In", "values": ["graphpod-engine", "graphpod-worker"]}
        ],
    }
    assert policy["podSelector"] == budget["selector"] == both
    assert policy["ingress"][-1] == {"from": [{"podSelector": both}]}
    assert all(labels["app.kubernetes.io/name"] in both["matchExpressions"][0]["values"] for labels in (leader, worker))  # type: ignore[index]
    assert len(policy["ingress"]) == 3


def test_a_service_of_one_node_is_made_as_before() -> None:
    assert planned(parallelism={"nodes": 1}).revision == planned().revision
    assert the(planned(**ONE), Resource.Deployment)["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": "graphpod-engine",
        "app.kubernetes.io/instance": "demo",
    }


@pytest.mark.parametrize(
    ("spec", "strategy"),
    [
        ({}, {"maxSurge": 1, "maxUnavailable": 0, "partition": 0}),
        (REPLACE, {"maxSurge": 0, "maxUnavailable": 1, "partition": 0}),
    ],
)
def test_groups_roll_as_pods_do(spec: dict[str, Any], strategy: dict[str, int]) -> None:
    rollout = the(planned(**TWO, **spec), LWS)["spec"]["rolloutStrategy"]
    assert rollout == {"type": "RollingUpdate", "rollingUpdateConfiguration": strategy}


def test_processors_of_a_pod_are_shared_out_to_the_ranks_in_it() -> None:
    wanted = planned(parallelism={"tensor": 2, "pipeline": 2, "nodes": 2}, resources={"limits": {"cpu": "6"}})
    assert json.loads(the(wanted, Resource.ConfigMap)["data"]["engine.json"])["threads"] == 3


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"parallelism": {"nodes": 2}}, Reason.ParallelismInvalid, "nodes 2 do not divide 1 rank"),
        (
            {"parallelism": {"tensor": 4, "nodes": 2}, "resources": {"limits": {"nvidia.com/gpu": 1}}},
            Reason.ParallelismInvalid,
            "set spec.resources.limits[nvidia.com/gpu]: 2, a GPU for each rank",
        ),
        (
            {**TWO, "resources": {"limits": {"nvidia.com/gpu": 2}}},
            Reason.FeatureNotBuilt,
            "GPUs without a rank (2 GPUs in each of 2 pods, 2 ranks)",
        ),
        (
            {**TWO, "model": {"uri": "s3://bucket/model", "stream": True}},
            Reason.FeatureNotBuilt,
            "spec.model.stream: a stream to the pods of 2 nodes is not built in this version; remove it",
        ),
    ],
)
def test_what_does_not_divide_or_is_not_built_is_refused(spec: dict[str, Any], reason: Reason, words: str) -> None:
    refused = outcome(**spec)
    assert isinstance(refused, Refused)
    assert (refused.reason, words in refused.what) == (reason, True), refused.what


def test_without_the_kind_several_nodes_are_refused_and_one_is_not() -> None:
    absent = {LWS: not_served(LWS)}
    refused = desire(PlanInput(Service.of(inference_service(**TWO)), INSTALLED, absent=absent))
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.LeaderWorkerSetMissing
    assert refused.what == (
        "spec.parallelism.nodes 2: LeaderWorkerSet (leaderworkerset.x-k8s.io/v1) is not served by this cluster"
    )
    assert isinstance(desire(PlanInput(Service.of(inference_service(**ONE)), INSTALLED, absent=absent)), Desired)


@pytest.mark.parametrize(
    ("owner", "known"),
    [
        (("apps/v1", "StatefulSet", "demo-group"), True),
        (("apps/v1", "StatefulSet", "demo-group-0"), True),
        (("apps/v1", "StatefulSet", "demo-group-1"), False),
        (("apps/v1", "StatefulSet", "demo"), False),
        (("other/v1", "StatefulSet", "demo-group"), False),
        (("apps/v1", "ReplicaSet", "demo-group"), False),
    ],
)
def test_a_pod_is_the_services_when_a_set_of_its_groups_controls_it(owner: tuple[str, str, str], known: bool) -> None:
    raw = part(1, planned(**TWO))
    fields = dict(zip(("apiVersion", "kind", "name"), owner, strict=True))
    raw["metadata"]["ownerReferences"] = [{**fields, "uid": "u", "controller": True}]
    assert (Pod.of(raw).key is not None) == known


def refuses_groups(method: str, resource: Resource) -> None:
    if resource is LWS and method == "apply":
        raise ServerRefused(422, "spec.leaderWorkerTemplate.workerTemplate.spec.containers[0].resources: too much")


async def grouped(world: World, **spec: Any) -> Desired:
    """A service of two nodes in a cluster that has the kind, looked at once."""
    world.discovery.served.add(LWS)
    await world.optional.look()
    await world.edit(**TWO, **spec)
    await world.reconcile()
    return planned(**TWO, **spec)


async def see(world: World, wanted: Desired, *pods: dict[str, Any], ready: int = 0) -> None:
    """What the controller of LeaderWorkerSets reports with these pods."""
    for place in [place for place in world.cluster.objects if place[0] is Resource.Pod]:
        del world.cluster.objects[place]
    for raw in pods:
        world.cluster.put(Resource.Pod, raw)
    status = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": ready}
    world.cluster.put(LWS, {**world.cluster.objects[PLACE], "status": status})
    world.ports.report = report("demo-group-0", wanted.config_hash)
    world.clock.now += 60
    await world.relist()
    await world.reconcile()
    await world.reconcile()


async def test_a_group_is_ready_when_all_of_it_is_and_its_leader_alone_is_asked(world: World) -> None:
    wanted = await grouped(world)
    await see(world, wanted, part(0, wanted), part(1, wanted, ready=True))
    assert world.condition("Ready")[0] != "True", "a worker that runs proves nothing"
    assert world.message("WorkloadAvailable") == (
        "0 of 1 groups of 2 pods of this spec serve; if it stays so: "
        f"kubectl -n {NAMESPACE} logs -l graphpod.dev/inferenceservice=demo --prefix"
    )
    await see(world, wanted, part(0, wanted, ready=True), part(1, wanted, ready=True), ready=1)
    assert world.condition("Ready") == ("True", "Ready")
    assert world.message("WorkloadAvailable") == "1 of 1 groups of 2 pods serve"
    assert world.service["status"]["pods"] == "1/1"
    assert [pod.index for pod in world.store.pods(next(iter(world.store.services())).key)] == [0, 1]
    await see(world, wanted, part(0, wanted, ready=True), part(1, wanted, running=False), ready=0)
    assert world.condition("Ready")[0] == "False"


async def test_a_lost_worker_is_the_reason_until_its_group_serves_again(world: World) -> None:
    wanted = await grouped(world)
    pods = [part(0, wanted, ready=True), part(1, wanted, ready=True)]
    await see(world, wanted, *pods, ready=1)
    killed = part(1, wanted, ready=True, restarts=1, engine=ended(137))
    await see(world, wanted, goes(part(0, wanted)), killed)
    assert world.condition("WorkloadAvailable") == ("False", "RankDied")
    assert "pod demo-group-0-1: worker 1 has ended with exit code 137" in world.message("WorkloadAvailable")
    said = world.told("RankDied")
    assert len(said) >= 1

    gone = goes(part(0, wanted, restarts=1, engine=ended(31, "RankDied: machine 1 of 2 (10.0.0.2) has gone")))
    await see(world, wanted, gone)
    assert "pod demo-group-0: machine 1 of 2 (10.0.0.2) has gone" in world.message("WorkloadAvailable")

    # the pods of the new group know nothing of it
    await see(world, wanted, part(0, wanted), part(1, wanted, ready=True))
    assert world.condition("WorkloadAvailable") == ("False", "Restarting")
    assert world.message("WorkloadAvailable") == (
        "a group starts again after RankDied: machine 1 of 2 (10.0.0.2) has gone; 0 of 1 groups of 2 pods of this spec "
        f"serve; for the new pods: kubectl -n {NAMESPACE} logs -l graphpod.dev/inferenceservice=demo --prefix"
    )
    failure = world.service["status"]["lastFailure"]
    assert (failure["reason"], failure["pod"], failure["exitCode"]) == ("RankDied", "demo-group-0", 31)
    successor = world.successor()
    successor.discovery.served.add(LWS)
    await successor.optional.look()
    await successor.relist()
    await successor.reconcile()
    assert successor.condition("WorkloadAvailable") == ("False", "Restarting")
    await see(world, wanted, *pods, ready=1)
    assert world.condition("Ready") == ("True", "Ready")
    assert "lastFailure" not in world.service["status"]


async def test_a_group_that_is_stopped_has_not_failed(world: World) -> None:
    wanted = await grouped(world)
    stopped = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    killed = {"state": {"terminated": {"exitCode": 137, "reason": "Error"}}}
    pods = goes(part(0, wanted, running=False, engine=stopped)), goes(part(1, wanted, running=False, engine=killed))
    await see(world, wanted, *pods)
    assert world.condition("WorkloadAvailable") == ("False", "Starting")
    assert "lastFailure" not in world.service["status"]


async def test_what_follows_the_end_of_a_leader_does_not_hide_its_cause(world: World) -> None:
    """The pods are deleted once the leader's container runs again, and the kubelet stops that run; its last request has
    no grace period, and finalizers keep the pod a while longer.
    """
    wanted = await grouped(world)
    stuck = ended(32, "RankStuck: rank 1 of 2 stands still at Ready: no heartbeat for 20 s")
    for code in (0, 137):
        stopped = {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:01:00Z"}
        leader = goes(part(0, wanted, restarts=1, running=False, engine={**stuck, "state": {"terminated": stopped}}))
        leader["metadata"] |= {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 0}
        await see(world, wanted, leader, goes(part(1, wanted)))
        assert world.condition("WorkloadAvailable") == ("False", "RankStuck")
    left = goes(part(1, wanted, restarts=1, engine=ended(31, "RankDied: the leader's machine has gone")))
    await see(world, wanted, left)
    assert world.condition("WorkloadAvailable") == ("False", "Restarting")
    assert "a group starts again after RankStuck: rank 1 of 2 stands still" in world.message("WorkloadAvailable")
    no_node = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 node(s) had taints."}
    waiting = part(0, wanted, running=False, container="", status={"conditions": [no_node]})
    await see(world, wanted, waiting, left)
    assert world.condition("WorkloadAvailable") == ("False", "GroupUnschedulable")
    await see(world, wanted, part(0, wanted), left)
    assert "a group starts again after RankStuck: rank 1 of 2 stands still" in world.message("WorkloadAvailable")
    assert world.told("RankDied") == []


async def test_a_leader_that_is_deleted_lets_its_worker_go_and_neither_has_failed(world: World) -> None:
    wanted = await grouped(world)
    leader = goes(part(0, wanted, running=False))
    leader["status"]["phase"] = "Succeeded"
    await see(world, wanted, leader, part(1, wanted, restarts=1, engine=ended(0)))
    assert world.condition("WorkloadAvailable") == ("False", "Starting")
    assert world.message("WorkloadAvailable").endswith("new pods wait until 1 old pod has gone")
    assert "lastFailure" not in world.service["status"]


async def test_starts_of_groups_that_die_in_a_capture_lead_to_a_weaker_plan(world: World) -> None:
    """Each of them is of another leader: the group is made again. Its workers' ends are the same ones."""
    wanted = await grouped(world)
    message = "CaptureFailed: model demo, decode, size 8: device-side assert"
    for start in range(3):
        pods = [part(index, wanted, restarts=1, engine=ended(12, message)) for index in (0, 1)]
        for raw in pods:
            raw["metadata"]["uid"] = f"uid-{raw['metadata']['name']}-{start}"
        await see(world, wanted, *map(goes, pods))
        deaths = world.service["status"]["graph"]["captureDeaths"]
        assert deaths == (start + 1) % 3
    made = world.cluster.objects[PLACE]["spec"]["leaderWorkerTemplate"]
    marks = {
        made[name]["metadata"]["annotations"]["graphpod.dev/config-hash"]
        for name in ("leaderTemplate", "workerTemplate")
    }
    assert marks != {wanted.config_hash}
    assert len(marks) == 1
    assert world.condition("Degraded") == ("True", "StartsDied")


@pytest.mark.parametrize(
    ("finished", "ended"),
    [("2026-01-01T00:01:00Z", 12), ("2026-01-01T00:01:01Z", None), (None, None)],
)
def test_a_container_that_was_stopped_with_its_group_has_not_failed(finished: str | None, ended: int | None) -> None:
    """Its deletion was requested 30 s before the timestamp: what it ended with after that is no failure of its own."""
    stopped = {"exitCode": 12, "reason": "Error", "message": "CaptureFailed: a peer has gone", "finishedAt": finished}
    raw = part(0, planned(**TWO), running=False, engine={"state": {"terminated": stopped}})
    raw["metadata"] |= {"deletionTimestamp": "2026-01-01T00:01:30Z", "deletionGracePeriodSeconds": 30}
    seen = Pod.of(raw)
    assert (seen.ended.code if seen.ended is not None else None) == ended
    assert (died(seen) is not None) == (ended is not None)


def test_a_leader_dies_once_however_its_next_run_ends() -> None:
    """It stays, stopped, until the last of its workers has gone."""
    wanted = planned(**TWO)
    death = ended(12, "CaptureFailed: decode, size 8")
    again = part(0, wanted, restarts=1, engine=death)
    stopped = part(0, wanted, restarts=1, running=False, engine={**death, "state": {"terminated": {"exitCode": 0}}})
    names = {died(Pod.of(raw)) for raw in (again, goes(again), goes(stopped))}
    assert names == {"uid-demo-group-0/0"}


def test_labels_of_the_spec_make_no_pod_of_a_deployment_a_worker() -> None:
    raw = pod()
    raw["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] = "1"
    assert Pod.of(raw).answers_requests


@pytest.mark.parametrize("written", [{"exitCode": 3}, {"reason": "RankDied", "exitCode": 3, "newer": 1}])
async def test_a_failure_that_another_version_wrote_stops_no_service(world: World, written: dict[str, Any]) -> None:
    await grouped(world)
    world.service["status"]["lastFailure"] = written
    world.write(Resource.InferenceService, world.service)
    await world.reconcile()
    known = written if "reason" in written else {}
    assert world.condition("WorkloadAvailable") == ("False", "Restarting" if known else "Starting")


async def test_from_one_node_to_two_the_pods_that_serve_go_when_the_group_is_ready(world: World) -> None:
    await world.edit(**ONE)
    await world.reconcile()
    world.discovery.served.add(LWS)
    await world.optional.look()
    deployment = Resource.Deployment, NAMESPACE, "demo"
    await world.edit(**TWO)
    await world.reconcile()
    wanted = planned(**TWO)
    assert {deployment, PLACE} <= world.cluster.objects.keys()
    await see(world, wanted, part(0, wanted), part(1, wanted, ready=True))
    assert deployment in world.cluster.objects
    await see(world, wanted, part(0, wanted, ready=True), part(1, wanted, ready=True), ready=1)
    assert deployment not in world.cluster.objects
    assert world.condition("Ready") == ("True", "Ready")

    await world.edit(**ONE)
    await world.reconcile()
    assert {deployment, PLACE} <= world.cluster.objects.keys(), "and back, the same"
    serving = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    made = {**world.deployment, "status": {"observedGeneration": 9, **serving}}
    world.cluster.put(Resource.Deployment, made)
    await world.relist()
    await world.reconcile()
    assert PLACE not in world.cluster.objects


async def test_where_pods_are_replaced_the_old_ones_go_at_once_if_the_new_may_come(world: World) -> None:
    await world.edit(**ONE, **REPLACE)
    await world.reconcile()
    world.discovery.served.add(LWS)
    await world.optional.look()
    await world.edit(**TWO, **REPLACE)
    world.cluster.writes.clear()
    world.cluster.refuse = refuses_groups
    await world.reconcile()
    assert "spec.resources: too much" in world.message("Accepted")
    assert "delete Deployment" not in world.kinds(), "what serves goes on"
    world.cluster.refuse = lambda method, resource: None
    await world.edit(**TWO, **REPLACE, engine={"maxBatch": 4})
    await world.reconcile()
    assert "delete Deployment" in world.kinds()
    assert PLACE in world.cluster.objects


async def test_while_a_group_serves_its_network_stays_open_whatever_the_spec_says_now(world: World) -> None:
    world.reconciler = world.make_reconciler(access=ACCESS)
    await grouped(world)
    await world.edit(**ONE)
    await world.reconcile()
    policy = world.cluster.objects[Resource.NetworkPolicy, NAMESPACE, "demo"]["spec"]
    assert "matchExpressions" in policy["podSelector"]


async def test_an_autoscaler_scales_groups(world: World) -> None:
    await grouped(world, autoscaling={"min": 2, "max": 4, "target": 4})
    scaled = world.cluster.objects[Resource.HorizontalPodAutoscaler, NAMESPACE, "demo"]["spec"]["scaleTargetRef"]
    assert scaled == {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "demo-group"}
    made = world.cluster.objects[PLACE]
    assert made["spec"]["replicas"] == 2
    assert "f:replicas" not in made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]


async def test_what_counts_groups_selects_leaders_alone(world: World) -> None:
    """The average of an autoscaler over all pods of groups would be that over leaders, divided by their size."""
    wanted = await grouped(world, autoscaling={"min": 2, "max": 4, "target": 4})
    await see(world, wanted, part(0, wanted, ready=True), part(1, wanted, ready=True), ready=1)
    status, made = world.service["status"], group(wanted)
    selected = dict(pair.split("=") for pair in status["selector"].split(","))
    leads, works = (
        selected.items() <= made[name]["metadata"]["labels"].items() for name in ("leaderTemplate", "workerTemplate")
    )
    assert (leads, works) == (True, False)
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)
    assert "HPA keeps 2 to 4 groups of 2 pods" in world.message("ScalingReady")


async def pause(world: World, value: str) -> None:
    metadata = {**world.service["metadata"], "annotations": {"graphpod.dev/paused": value}}
    world.write(Resource.InferenceService, {**world.service, "metadata": metadata})
    await world.reconcile()


def test_a_rollout_that_waits_for_weights_is_no_fault_of_the_controller_of_groups() -> None:
    raw = inference_service(**TWO)
    wanted = planned(**TWO)
    rollout = DeploymentRollout.of_groups({**the(wanted, LWS), "status": {"replicas": 1}})
    seen = Observed(rollout, (Pod.of(part(0, planned(**TWO, engine={"maxBatch": 4}))),), {})
    old = find_no_surge(Service.of(raw), wanted, seen, ())
    assert old is not None
    assert old.reason is Reason.LeaderWorkerSetOutdated
    waiting = replace(wanted, weights=Weights("demo", None, None, (), frozenset(), evicts=False, waits=True))
    assert find_no_surge(Service.of(raw), waiting, seen, ()) is None


async def test_a_controller_that_cannot_surge_is_named_and_one_that_says_its_generation_is_not(world: World) -> None:
    before = await grouped(world)
    await see(world, before, part(0, before, ready=True), part(1, before, ready=True), ready=1)
    await world.edit(**TWO, engine={"maxBatch": 4})
    await world.reconcile()
    old = part(0, before, ready=True), part(1, before, ready=True)
    await see(world, before, *old, ready=1)
    assert world.condition("WorkloadAvailable") == ("False", "LeaderWorkerSetOutdated")
    assert world.message("Ready").endswith("install 0.9 or newer, or set spec.rollout.strategy: Replace")
    await pause(world, "true")
    assert world.condition("WorkloadAvailable") == ("False", "Starting"), "it is the operator that has not begun"
    await pause(world, "false")
    made = world.cluster.objects[PLACE]
    world.cluster.put(LWS, {**made, "status": {**made["status"], "observedGeneration": 99}})
    await world.relist()
    await world.reconcile()
    assert world.condition("WorkloadAvailable") == ("False", "Starting")
    await world.edit(**TWO, engine={"maxBatch": 4}, **REPLACE)
    await world.reconcile()
    await see(world, before, *old, ready=1)
    assert world.condition("WorkloadAvailable") == ("False", "Starting")


def test_the_queue_of_kueue_stands_on_the_object_that_makes_groups_and_on_their_pods() -> None:
    raw, queue = inference_service(**TWO), {"kueue.x-k8s.io/queue-name": "gpus"}
    raw["metadata"]["labels"] = queue
    found = desire(PlanInput(Service.of(raw), INSTALLED))
    assert isinstance(found, Desired)
    made, templates = the(found, LWS), group(found)
    for part in (made, templates["leaderTemplate"], templates["workerTemplate"]):
        assert queue.items() <= part["metadata"]["labels"].items()


async def test_a_group_that_has_no_room_for_a_worker_names_what_ends_a_wait_for_each_other(world: World) -> None:
    wanted = await grouped(world)
    no_node = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient cpu."}
    waiting = part(1, wanted, running=False, container="", status={"conditions": [no_node]})
    await see(world, wanted, part(0, wanted), waiting)
    for kind in ("Scheduled", "WorkloadAvailable", "Ready"):
        assert world.condition(kind) == ("False", "GroupUnschedulable")
        assert world.message(kind) == (
            "pod demo-group-0-1: 0/2 nodes are available: 2 Insufficient cpu; free or add nodes, or relax "
            "spec.placement; if groups wait for each other: docs/how-to/several-nodes.md#groups-that-wait"
        )


@pytest.mark.parametrize("strategy", [{}, REPLACE])
async def test_as_many_groups_come_as_there_were_pods_by_an_autoscaler(world: World, strategy: dict[str, Any]) -> None:
    scaled = {"autoscaling": {"min": 1, "max": 8, "target": 4}}
    await world.edit(**ONE, **scaled, **strategy)
    await world.reconcile()
    world.deployment["spec"]["replicas"] = 5
    world.write(Resource.Deployment, world.deployment)
    await grouped(world, **scaled, **strategy)
    assert world.cluster.objects[PLACE]["spec"]["replicas"] == 5
    assert ((Resource.Deployment, NAMESPACE, "demo") in world.cluster.objects) == (strategy == {})


async def test_a_service_of_the_name_of_the_groups_stops_them(world: World) -> None:
    """Their controller would find its Service in the place of the headless one, and no pod the other."""
    world.discovery.served.add(LWS)
    await world.optional.look()
    owner = {"apiVersion": "graphpod.dev/v1alpha1", "kind": "InferenceService", "name": "demo-group", "uid": "x"}
    labels = {"graphpod.dev/inferenceservice": "demo-group", "app.kubernetes.io/managed-by": "graphpod"}
    metadata = {"name": "demo-group", "namespace": NAMESPACE, "labels": labels}
    metadata["ownerReferences"] = [{**owner, "controller": True}]  # type: ignore[assignment]
    world.cluster.put(Resource.Service, {"metadata": metadata})
    await world.edit(**TWO)
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "NameCollision")
    assert PLACE not in world.cluster.objects


async def test_the_configurations_of_earlier_groups_stay_while_their_memories_do(world: World) -> None:
    """A group that is made again during a rollout has no pods for a while, and nothing else names its ConfigMap."""
    for size in range(1, 6):
        await grouped(world, engine={"maxBatch": size})
        world.clock.now += PRUNE_SECONDS
    await world.reconcile()
    kept = {name.removeprefix("demo-engine-") for kind, _, name in world.cluster.objects if kind is Resource.ConfigMap}
    assert kept == {planned(**TWO, engine={"maxBatch": size}).config_hash for size in (3, 4, 5)}


async def test_a_lost_memory_of_groups_is_made_again_from_what_runs(world: World) -> None:
    wanted = await grouped(world)
    memory = Resource.ControllerRevision, NAMESPACE, f"demo-{wanted.revision}"
    kept = world.cluster.objects.pop(memory)["data"]
    newer = world.successor()
    newer.discovery.served.add(LWS)
    await newer.optional.look()
    newer.reconciler = newer.make_reconciler(images=type(IMAGES)("newer:1", "newer:1-gpu"))
    await newer.relist()
    await newer.reconcile()
    again = newer.cluster.objects[memory]["data"]
    assert [again[name] for name in ("madeFrom", "engine.json", "workload.json")] == [
        kept[name] for name in ("madeFrom", "engine.json", "workload.json")
    ]
    (engine,) = newer.cluster.objects[PLACE]["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"]
    assert engine["image"] == IMAGES.cpu


async def test_an_error_of_the_groups_object_is_that_of_the_service(world: World) -> None:
    """Without it there are no pods: it is no addition to them."""
    world.cluster.refuse = refuses_groups
    await grouped(world)
    assert world.condition("Accepted") == ("False", "SpecInvalid")
    assert "spec.resources: too much" in world.message("Accepted")
