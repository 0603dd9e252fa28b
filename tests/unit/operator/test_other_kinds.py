"""Any place of an object may hold a value of another kind: an older CRD let it pass, or somebody's controller wrote it.
The operator says so at the object, and goes on; no other service notices.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from graphpod_operator.api.names import STORED_PREFIX
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.claim import Claim
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.projections import Projection, project
from graphpod_operator.cache.service import Service
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.pinned_rendering import canonical
from tests.unit.operator.downloads import MODEL, job_pod
from tests.unit.operator.objects import INSTALLED, NAMESPACE, Manifest, inference_service, pod
from tests.unit.operator.observe.test_warmup_report import Path, paths, put
from tests.unit.operator.world import World

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 10**30, 1.5, "", "x", "x" * 10_000, "[" * 50_000),
    *([], [None], [[]], [{}], {}, {"": []}, {"a": None}),
)
WHO = ("name", "namespace", "uid", "resourceVersion")
"""Of metadata: without them there is no object."""
OTHER = Key(NAMESPACE, "other")
ROW = {"type": "Ready", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
OWNED = {
    "apiVersion": "graphpod.dev/v1alpha1",
    "kind": "InferenceService",
    "name": "demo",
    "uid": inference_service()["metadata"]["uid"],
    "controller": True,
}
GATEWAY = {"name": "edge", "namespace": "gateways", "sectionName": "https", "port": 443}
ENDED = {"exitCode": 12, "reason": "Error", "message": "CaptureFailed: m", "finishedAt": "2026-01-01T00:00:01Z"}


def child(**rest: Any) -> Manifest:
    return {
        "metadata": {
            "name": "demo",
            "namespace": NAMESPACE,
            "uid": "u",
            "resourceVersion": "7",
            "generation": 1,
            "labels": {"graphpod.dev/inferenceservice": "demo", "app.kubernetes.io/managed-by": "graphpod"},
            "annotations": {"graphpod.dev/applied": "a", "graphpod.dev/revision": "r"},
            "ownerReferences": [OWNED],
            "finalizers": ["foregroundDeletion"],
            "managedFields": [
                {
                    "manager": "graphpod",
                    "operation": "Apply",
                    "fieldsV1": {"f:spec": {"f:replicas": {}, "f:list": {'k:{"name":"a"}': {".": {}, "f:b": {}}}}},
                }
            ],
        },
        **rest,
    }


WORKLOAD = child(
    spec={"replicas": 1, "list": [{"name": "a", "b": 1}]},
    status={
        "observedGeneration": 1,
        "replicas": 1,
        "updatedReplicas": 1,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "conditions": [{**ROW, "type": "ReplicaFailure", "status": "True"}, {**ROW, "type": "Progressing"}],
    },
)
ROUTE = child(
    spec={
        "parentRefs": [GATEWAY],
        "hostnames": ["a.example"],
        "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}]}],
    },
    status={"parents": [{"parentRef": GATEWAY, "conditions": [{**ROW, "type": "Accepted", "observedGeneration": 1}]}]},
)
POD = pod(
    running=False,
    restarts=2,
    status={
        "phase": "Failed",
        "reason": "Evicted",
        "message": "m",
        "conditions": [
            {**ROW, "type": "PodReadyToStartContainers"},
            {**ROW, "type": "PodScheduled", "message": 'persistentvolumeclaim "a" not found'},
        ],
    },
    engine={
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}, "running": {"startedAt": None}},
        "lastState": {"terminated": ENDED},
    },
)
POD["spec"] = {
    "nodeName": "n",
    "schedulingGates": [{"name": "kueue.x-k8s.io/a"}],
    "containers": [{"name": "engine", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
}
WORKER = copy.deepcopy(POD)
WORKER["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}
WORKER["metadata"]["ownerReferences"][0] |= {"kind": "StatefulSet", "name": "demo-group-0"}
WORKER["metadata"]["labels"] |= {
    "leaderworkerset.sigs.k8s.io/worker-index": "1",
    "leaderworkerset.sigs.k8s.io/group-index": "0",
}
FETCHES = job_pod("u", ended={"code": 2, "phase": "Failed", "reason": "Unauthorized", "message": "m"})
FETCHES["metadata"] |= {"uid": "f", "resourceVersion": "5"}
FETCHES["metadata"]["ownerReferences"][0]["uid"] = "j"
JOB = child(
    spec={"template": {"spec": {"volumes": [{"name": "credentials", "secret": {"secretName": "s"}}]}}},
    status={"failed": 1, "conditions": [{**ROW, "type": "Failed", "status": "True"}]},
)
JOB["metadata"]["labels"]["graphpod.dev/folder"] = "f"
JOB["metadata"]["annotations"] |= {
    "graphpod.dev/claim": "c",
    "graphpod.dev/secrets": '["s"]',
    "graphpod.dev/near": '["demo"]',
}
ASKED = inference_service()
ASKED["metadata"] |= {
    "annotations": {f"graphpod.dev/{name}": "r1" for name in ("adopt", "sleep", "reload", "paused")},
    "labels": {"kueue.x-k8s.io/queue-name": "q"},
}
SCALER = child(spec={"a": 1}, status={"conditions": [{**ROW, "type": "AbleToScale"}]})
LIVE: tuple[tuple[Resource, Manifest], ...] = (
    (Resource.Deployment, WORKLOAD),
    (Resource.LeaderWorkerSet, put(WORKLOAD, ("metadata", "name"), "demo-group")),
    (Resource.HTTPRoute, ROUTE),
    (Resource.HorizontalPodAutoscaler, SCALER),
    (Resource.ScaledObject, SCALER),
    (Resource.ConfigMap, child(data={"engine.json": "{}"})),
    (Resource.ControllerRevision, child(data={"engine.json": "{}"}, revision=1)),
    (Resource.Pod, POD),
    (Resource.Pod, WORKER),
    (Resource.Pod, FETCHES),
    (Resource.Job, JOB),
    (Resource.InferenceService, ASKED),
)
CLAIM = child(
    spec={
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast",
    }
)
CLAIM["metadata"]["annotations"][f"{STORED_PREFIX}f"] = '{"uri": "hf://a/b", "claim": "u"}'


def variants(whole: Any) -> Iterator[tuple[Path, Any]]:
    """The same with each value at each place, but for what says which object it is."""
    for at in paths(whole):
        if at not in ((), ("metadata",)) and not (at[0] == "metadata" and at[1] in WHO):
            yield from ((at, put(whole, at, value)) for value in VALUES)


def distinct(kind: Resource, whole: Manifest) -> dict[str, tuple[Path, Projection]]:
    """What comes of them all, once for each that differs in more than words about what is wrong."""
    found: dict[str, tuple[Path, Projection]] = {}
    for at, raw in variants(whole):
        item = project(kind, raw)
        words = {"breach": item.breach and "broken"} | ({"owned": "", "applied": ""} if isinstance(item, Child) else {})
        found.setdefault(repr(replace(item, **words)), (at, item))
    return found


async def two_services() -> World:
    """Of which `demo` has what is not right."""
    world = World()
    world.discovery.served |= {Resource.LeaderWorkerSet, Resource.ScaledObject, Resource.HTTPRoute}
    other = inference_service("other")
    other["metadata"]["uid"] = "22222222-2222-3333-4444-555555555555"
    world.cluster.put(Resource.InferenceService, inference_service())
    world.cluster.put(Resource.InferenceService, other)
    await world.optional.look()
    await world.relist()
    await world.reconcile()
    return world


@pytest.mark.parametrize(("kind", "whole"), LIVE, ids=lambda value: value.kind if isinstance(value, Resource) else "")
async def test_every_place_of_a_live_object_may_hold_any_value(kind: Resource, whole: Manifest) -> None:
    assert project(kind, whole).breach is None, "as it should be, it is read whole"
    world = await two_services()
    for at, item in distinct(kind, whole).values():
        if (known := world.store.known(item)) is not None:
            item = replace(item, uid=known.uid)
            world.store.forget(known)
        world.store.observe(item)
        try:
            await world.reconcile()
        except Exception as error:
            raise AssertionError(f"{kind.kind} {at}: {item}") from error
    await world.reconciler.reconcile(OTHER)
    (other,) = [one for (_, _, name), one in world.cluster.objects.items() if name == "other" and "spec" in one][:1]
    (accepted,) = (row for row in other["status"]["conditions"] if row["type"] == "Accepted")
    assert accepted["status"] == "True"


def test_every_place_of_a_claim_may_hold_any_value() -> None:
    whole = Claim.of(CLAIM)
    assert (whole.modes, whole.storage, whole.storage_class) == (("ReadWriteOnce",), "1Gi", "fast")
    assert whole.stored["f"].uri == "hf://a/b"
    for at, raw in variants(CLAIM):
        found = Claim.of(raw)
        assert all(isinstance(mode, str) for mode in found.modes), at
        assert isinstance(found.storage, str | None), at
        assert isinstance(found.storage_class, str | None), at


async def test_a_status_that_cannot_be_read_is_reported_and_the_rest_counts() -> None:
    """So a child of ours whose status is another's fault is not taken for one that somebody changed."""
    world = await two_services()
    world.write(Resource.Deployment, {**world.deployment, "status": {"readyReplicas": "one"}})
    before = len(world.cluster.writes)
    await world.reconcile()
    assert [kind for kind in world.kinds()[before:] if kind != "status"] == []
    (told,) = world.told("ObjectSkipped")
    assert told.startswith("Deployment demo: the object cannot be read: Expected `int`, got `str`")
    assert "$.status.readyReplicas" in told


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("value", [None, 1, [], {}, {"": []}], ids=repr)
async def test_what_does_not_say_which_object_it_is_is_ignored_alone(who: str, value: Any, caplog: Any) -> None:
    world = await two_services()
    nameless = put(POD, ("metadata", who), value)
    world.informer.changed(Resource.Pod, nameless)
    world.informer.deleted(Resource.Pod, nameless)
    world.cluster.objects[Resource.Pod, NAMESPACE, "nameless"] = nameless
    world.cluster.put(Resource.Pod, POD)
    await world.relist()
    assert [one.name for one in world.store.pods(Key(NAMESPACE, "demo"))] == ["demo-abc-1"]
    assert "an object without identity is ignored" in caplog.text


PASSED_ON: Manifest = {
    "podTemplate": {
        "labels": {"team": "search"},
        "annotations": {"a.b/c": "64"},
        "env": [
            {"name": "A", "value": "b"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "CORES", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1"}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token", "optional": True}}},
        ],
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}},
            {"name": "ca", "configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}},
            {"name": "s", "secret": {"secretName": "s", "optional": False}},
            {"name": "p", "persistentVolumeClaim": {"claimName": "p"}},
            {"name": "all", "projected": {"sources": [{"secret": {"name": "x"}}]}},
            {"name": "image", "image": {"reference": "a/b:c"}},
        ],
        "volumeMounts": [{"name": "scratch", "mountPath": "/var/scratch", "subPath": "engine"}],
    },
    "placement": {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
    "model": {**MODEL, "secretRef": {"name": "hub"}},
    "parallelism": {"pipeline": 2, "nodes": 2},
    "resources": {"limits": {"cpu": "1", "memory": "2Gi"}},
}
"""What the API server passes on as it is written, and what is read before the spec is judged."""


def test_every_place_of_a_spec_may_hold_any_value() -> None:
    """As it does where the CRD is older, or was edited: the spec is refused by the name of a field, or goes on."""
    taken = 0
    for at in paths(PASSED_ON):
        for value in (None, True, 10**30, "x", [[]], {"": []}, "\ud800"):
            spec = put(PASSED_ON, at, value)
            manifest = {**inference_service(), "spec": spec}
            found = desire(PlanInput(Service.of(manifest), INSTALLED))
            if isinstance(found, Refused):
                assert found.what.startswith(("spec", "the object cannot be read")), (at, value, found)
            else:
                taken += 1
                assert found.mounts is not None
                assert canonical(found.workload).encode()
    assert taken > 200


@pytest.mark.parametrize("claim", [{"a": 1}, ["b"], 1])
async def test_a_cache_that_names_no_claim_is_refused_and_looked_for_nowhere(claim: Any) -> None:
    world = World()
    model = {"uri": "hf://org/name", "cache": {"claim": claim}}
    world.cluster.put(Resource.InferenceService, inference_service(model=model))
    await world.relist()
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "SpecInvalid")
    assert world.message("Accepted").startswith("spec.model.cache.claim: ")
