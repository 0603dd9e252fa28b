"""The children: in the server's normal form, owned, kept in order with one write, and gone with their owner."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from graphpod_operator.cache.child import Child
from graphpod_operator.cache.service import Service
from graphpod_operator.kube.field_ownership import desired_fields, owned_fields
from graphpod_operator.kube.resources import AT_TIMES, CHILDREN, Resource
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_policy import EngineConfig, config_hash
from tests.api.operator.process import INSTALLED, USER, Operator
from tests.audit import Audit
from tests.places import LABEL, Place, service

KINDS = ("serviceaccount", "configmap", "service", "controllerrevision", "deployment")

EVERYTHING: dict[str, Any] = {
    "model": {"uri": "pvc://weights/a/b", "name": "served"},
    "engine": {"image": "x/y:z", "imagePullPolicy": "Always", "dtype": "float32", "kvCacheMemory": "1.5Gi"},
    "graph": {"sizes": {"prefill": [8, 64], "decode": [1, 3]}},
    "replicas": 3,
    "resources": {
        "requests": {"cpu": "0.5", "memory": "1024Mi", "ephemeral-storage": 10000000},
        "limits": {"cpu": "1500m", "memory": "1.5Gi", "ephemeral-storage": "20000k"},
    },
    "placement": {
        "nodeSelector": {"a": "b"},
        "tolerations": [
            {"key": "x", "operator": "Exists"},
            {"key": "y", "value": "z", "effect": "NoExecute", "tolerationSeconds": 5},
        ],
        "priorityClassName": "system-node-critical",
    },
    "rollout": {"strategy": "Replace", "drainSeconds": 1},
}


def wanted(place: Place, name: str = "demo") -> Desired:
    """What the operator plans for a stored service."""
    found = json.loads(place.kubectl("get", "controllerrevisions", "-l", f"{LABEL}={name}", "-o", "json"))["items"]
    memories = [Child.of(Resource.ControllerRevision, raw) for raw in found]
    planned = desire(PlanInput(Service.of(place.get("gisvc", name)), INSTALLED, memories))
    assert isinstance(planned, Desired)
    return planned


@pytest.mark.parametrize("spec", [{}, EVERYTHING, {"suspend": True}], ids=["plain", "everything", "suspended"])
def test_what_the_server_keeps_as_our_fields_is_what_we_applied(
    operator: Operator, place: Place, eventually, spec: dict[str, Any]
) -> None:
    place.apply(**spec)
    eventually(place.reached("Accepted", "True", "Accepted"))
    for child in wanted(place).children:
        live = place.get(child.resource.plural, child.name)
        assert owned_fields(live) == desired_fields(child.body), child.resource.kind


def test_every_child_is_controlled_by_the_service_and_does_not_block_its_deletion(applied: Place) -> None:
    uid = applied.get("gisvc", "demo")["metadata"]["uid"]
    children = json.loads(applied.kubectl("get", ",".join(KINDS), "-l", f"{LABEL}=demo", "-o", "json"))["items"]
    assert sorted(child["kind"].lower() for child in children) == sorted(KINDS)
    for child in children:
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (uid, True)
        assert "blockOwnerDeletion" not in owner


def test_the_service_carries_no_finalizer_and_no_annotation_of_a_framework(applied: Place) -> None:
    metadata = applied.get("gisvc", "demo")["metadata"]
    assert "finalizers" not in metadata
    assert "annotations" not in metadata


def test_the_config_map_holds_exactly_the_bytes_of_its_name(applied: Place) -> None:
    (name,) = applied.names("configmap")
    config = applied.get("configmap", name.partition("/")[2])
    data = config["data"]["engine.json"].encode()
    assert name == f"configmap/demo-engine-{config_hash(data)}"
    assert config["immutable"] is True
    assert EngineConfig.parse(data).canonical() == data


EDITS: dict[str, list[str]] = {
    "serviceaccount": ["patch", "serviceaccount", "demo", "-p", '{"automountServiceAccountToken": true}'],
    "service": ["patch", "service", "demo", "-p", '{"spec": {"selector": {"app.kubernetes.io/name": "mine"}}}'],
    "deployment": ["scale", "deployment", "demo", "--replicas=3"],
    "controllerrevision": [
        "label",
        "controllerrevision",
        "-l",
        f"{LABEL}=demo",
        "app.kubernetes.io/part-of=mine",
        "--overwrite",
    ],
    "configmap": ["label", "configmap", "-l", f"{LABEL}=demo", "app.kubernetes.io/part-of=mine", "--overwrite"],
}


def test_each_child_edited_by_hand_is_put_back_in_one_write(
    applied: Place, audit: Audit, settled: Callable[[], None], operator: Operator
) -> None:
    before = _corrections(operator)
    mark = audit.mark()
    for edit in EDITS.values():
        applied.kubectl(*edit)
    settled()
    _in_order(applied)
    assert _written(audit, mark, applied) == sorted(kind + "s" for kind in KINDS)
    # one correction of this test, one of the marker that `settled` repairs
    assert _corrections(operator) == [count + 2 for count in before]


def test_each_child_that_lost_our_label_is_put_back_in_one_write(
    applied: Place, audit: Audit, settled: Callable[[], None]
) -> None:
    mark = audit.mark()
    applied.kubectl("label", ",".join(KINDS), "-l", f"{LABEL}=demo", "app.kubernetes.io/managed-by-")
    settled()
    _in_order(applied)
    assert _written(audit, mark, applied) == sorted(kind + "s" for kind in KINDS)


def test_each_child_deleted_by_hand_is_made_again_in_one_write(
    applied: Place, audit: Audit, settled: Callable[[], None], eventually
) -> None:
    mark = audit.mark()
    applied.kubectl("delete", ",".join(KINDS), "-l", f"{LABEL}=demo")
    eventually(lambda: len(applied.names(",".join(KINDS))) == len(KINDS))
    settled()
    _in_order(applied)
    assert _written(audit, mark, applied) == sorted(kind + "s" for kind in KINDS)


def test_what_is_not_ours_to_decide_leads_to_no_write(quiet: Place, audit: Audit, settled: Callable[[], None]) -> None:
    """A foreign field on a child, a second identical apply, a label on the service."""
    mark = audit.mark()
    quiet.annotate("service", "demo", {"example.com/owner": "me"})
    quiet.apply()
    quiet.label("gisvc", "demo", {"team": "a"})
    settled()
    assert audit.since(mark).by(USER).of(quiet.namespace).writes() == ()
    assert quiet.get("service", "demo")["metadata"]["annotations"]["example.com/owner"] == "me"


def test_a_restart_of_the_operator_writes_nothing(
    quiet: Place, audit: Audit, operator: Operator, settled: Callable[[], None], eventually
) -> None:
    assert operator.stop() == 0
    mark = audit.mark()
    operator.start()
    eventually(operator.idle)
    settled()
    assert audit.since(mark).by(USER).of(quiet.namespace).writes() == ()


def test_a_change_of_the_spec_reaches_the_pods_through_a_new_config_map(
    applied: Place, eventually, settled: Callable[[], None]
) -> None:
    before = applied.names("configmap")
    template = applied.get("deployment", "demo")["spec"]["template"]
    applied.apply(engine={"maxBatch": 2})
    eventually(lambda: applied.get("deployment", "demo")["spec"]["template"] != template)
    settled()
    assert len(set(applied.names("configmap")) - set(before)) == 1
    _in_order(applied)


def test_scaling_the_service_scales_the_deployment_and_tells_its_selector(applied: Place, eventually) -> None:
    applied.kubectl("scale", "gisvc", "demo", "--replicas=2")
    eventually(lambda: applied.get("deployment", "demo")["spec"]["replicas"] == 2)
    eventually(lambda: applied.status()["replicas"] == 2)
    raw = f"/apis/graphpod.dev/v1alpha1/namespaces/{applied.namespace}/inferenceservices/demo/scale"
    scale = json.loads(applied.cluster.kubectl("get", "--raw", raw))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 2)
    selected = applied.kubectl("get", "pods", "-l", scale["status"]["selector"], "-o", "name").split()
    assert len(selected) == 2


def test_a_second_replica_brings_a_budget_and_its_end_takes_it_away(
    applied: Place, audit: Audit, eventually, settled: Callable[[], None]
) -> None:
    applied.apply(replicas=2)
    eventually(lambda: applied.names("poddisruptionbudgets") == ["poddisruptionbudget.policy/demo"])
    settled()  # the Deployment is written after the budget
    mark = audit.mark()
    applied.drop("poddisruptionbudget", "demo")
    eventually(lambda: applied.names("poddisruptionbudgets"))
    settled()
    assert _written(audit, mark, applied) == ["poddisruptionbudgets"]
    _in_order(applied)
    applied.apply(replicas=1)
    eventually(lambda: applied.names("poddisruptionbudgets") == [])
    applied.kubectl("create", "poddisruptionbudget", "demo", "--selector=a=b", "--min-available=1")
    mark = audit.mark()
    settled()
    assert _written(audit, mark, applied) == [], "somebody's own, which is not in the way"


def test_deleting_the_service_leaves_no_object(applied: Place, eventually) -> None:
    applied.remove()
    kinds = "deployments,replicasets,pods,services,configmaps,serviceaccounts,controllerrevisions,poddisruptionbudgets"
    eventually(lambda: applied.names(f"{kinds},gisvc") == [])


def test_a_service_made_again_under_the_same_name_gets_children_of_its_own(applied: Place, eventually) -> None:
    applied.kubectl("delete", "gisvc", "demo", "--wait=false")
    applied.apply()
    eventually(applied.reached("Accepted", "True", "Accepted"))
    eventually(lambda: len(applied.names(",".join(KINDS))) == len(KINDS))
    uid = applied.get("gisvc", "demo")["metadata"]["uid"]

    def all_ours() -> bool:
        items = json.loads(applied.kubectl("get", ",".join(KINDS), "-l", f"{LABEL}=demo", "-o", "json"))["items"]
        return len(items) == len(KINDS) and all(item["metadata"]["ownerReferences"][0]["uid"] == uid for item in items)

    eventually(all_ours)


def test_create_takes_five_children_and_few_status_writes(
    operator: Operator, place: Place, audit: Audit, eventually, settled: Callable[[], None]
) -> None:
    mark = audit.mark()
    place.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(service()))
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    settled()
    writes = audit.since(mark).by(USER).of(place.namespace).writes()
    made = sorted(write.resource for write in writes if not write.subresource)
    assert made == sorted([*(kind + "s" for kind in KINDS), "events"]), "the Event is Planned"
    assert len(writes) <= len(KINDS) + 5


def _in_order(place: Place) -> None:
    for child in wanted(place).children:
        assert owned_fields(place.get(child.resource.plural, child.name)) == desired_fields(child.body)


def _written(audit: Audit, mark: int, place: Place) -> list[str]:
    """The kinds of children written since a mark, once for each write."""
    writes = audit.since(mark).by(USER).of(place.namespace).writes()
    return sorted(write.resource for write in writes if write.resource not in ("inferenceservices", "events"))


def _corrections(operator: Operator) -> list[float]:
    return [
        operator.metric(f'graphpod_operator_drift_corrections_total{{kind="{resource.kind}"}}')
        for resource in CHILDREN
        if resource not in (*AT_TIMES, Resource.LeaderWorkerSet)
    ]
