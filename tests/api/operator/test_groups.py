"""Groups of pods by LeaderWorkerSet's own CRD: the test plays its controller, the cluster's own makes the pods."""

import json
from typing import Any

import pytest
import yaml

from testbed.binaries.foreign import Foreign
from tests.api.operator.pods import AdminPorts, crashed, report, running, set_status
from tests.api.operator.process import USER, Operator, serve
from tests.audit import Audit
from tests.crd import drop_crd
from tests.eventually import Eventually
from tests.places import Manifest, Place

TWO: dict[str, Any] = {"parallelism": {"pipeline": 2, "nodes": 2}}
ONE: dict[str, Any] = {"parallelism": {"pipeline": 2}}
GROUPS = "leaderworkerset.sigs.k8s.io"
SETS = "/apis/apps/v1/namespaces/{}/statefulsets/{}"


PARTITION = "spec.rolloutStrategy.rollingUpdateConfiguration.partition"


def older() -> Manifest:
    """The CRD without a field that it has since version 0.7."""
    crd: Manifest = yaml.safe_load(Foreign.LeaderWorkerSet.manifest().read_text())
    found = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    *path, last = PARTITION.split(".")
    for name in path:
        found = found["properties"][name]
    del found["properties"][last]
    return crd


def stateful_set(place: Place, name: str, template: Manifest, labels: dict[str, str], start: int) -> None:
    """One pod of a group: its number is `start`."""
    metadata = {**template["metadata"], "labels": {**template["metadata"]["labels"], **labels}}
    place.cluster.apply(
        SETS.format(place.namespace, name),
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name, "namespace": place.namespace},
            "spec": {
                "serviceName": "demo-group",
                "ordinals": {"start": start},
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {**template, "metadata": metadata},
            },
        },
    )


def made(place: Place, eventually: Eventually) -> tuple[Manifest, Manifest]:
    """What the controller of LeaderWorkerSets makes of the service's: the leader of its group, and the worker."""
    group = place.get("leaderworkerset", "demo-group")["spec"]["leaderWorkerTemplate"]
    assert group["size"] == 2
    index = {f"{GROUPS}/group-index": "0"}
    for name, part, number in (("demo-group", "leaderTemplate", 0), ("demo-group-0", "workerTemplate", 1)):
        labels = {**index, f"{GROUPS}/worker-index": str(number)}
        stateful_set(place, name, group[part], labels, number)
    eventually(lambda: len(pods(place)) == 2)
    leader, worker = pods(place)
    return leader, worker


def pods(place: Place) -> list[Manifest]:
    found = place.all("pod", f"{GROUPS}/group-index=0")
    return sorted(found, key=lambda pod: str(pod["metadata"]["labels"][f"{GROUPS}/worker-index"]))


def counted(place: Place, ready: int) -> None:
    """The controller writes how many groups there are, and how many of them are ready."""
    status = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": ready}
    place.merge("leaderworkerset", "demo-group", {"status": status}, "status")


def serving(place: Place, admin_ports: AdminPorts, eventually: Eventually) -> tuple[Manifest, Manifest]:
    leader, worker = made(place, eventually)
    set_status(place.cluster, worker, running(True))
    set_status(place.cluster, leader, running(True))
    admin_ports.tell(leader, report(leader))
    counted(place, 1)
    eventually(place.reached("Ready", "True", "Ready"), timeout=60)
    return leader, worker


@pytest.fixture
def grouped(hasty: Operator, place: Place, eventually: Eventually) -> Place:
    """A service of two nodes whose LeaderWorkerSet exists."""
    serve(place, Foreign.LeaderWorkerSet)
    place.apply(**TWO)
    eventually(lambda: place.names("leaderworkersets"), timeout=60)
    return place


def test_several_nodes_wait_for_their_kind_and_a_group_is_ready_when_its_leader_has_proved_all_graphs(
    hasty: Operator, place: Place, admin_ports: AdminPorts, audit: Audit, eventually: Eventually
) -> None:
    mark = audit.mark()
    place.apply(**TWO)
    told = eventually(place.reached("Accepted", "False", "LeaderWorkerSetMissing"))
    assert (
        "LeaderWorkerSet (leaderworkerset.x-k8s.io/v1) is not served by this cluster; install LeaderWorkerSet" in told
    )
    assert place.names("deployments,services") == []

    place.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(older()))
    told = eventually(place.reached("Accepted", "False", "LeaderWorkerSetOutdated"), timeout=60)
    assert f"has no field {PARTITION}; install LeaderWorkerSet 0.9 or newer" in told
    serve(place, Foreign.LeaderWorkerSet)
    eventually(lambda: place.names("leaderworkersets"), timeout=60)
    leader, worker = made(place, eventually)
    (key,) = [
        one
        for one in json.loads(place.kubectl("get", "secrets", "-o", "json"))["items"]
        if "group-key" in one["metadata"]["name"]
    ]
    assert [one["kind"] for one in key["metadata"]["ownerReferences"]] == ["InferenceService"]
    for pod in (leader, worker):
        sources = [one.get("valueFrom") for one in pod["spec"]["containers"][0]["env"]]
        assert {"secretKeyRef": {"name": key["metadata"]["name"], "key": "key"}} in sources
    assert key["data"]["key"] not in json.dumps([leader, worker]) + hasty.log.read_text()
    set_status(place.cluster, worker, running(True))
    set_status(place.cluster, leader, running(False))
    admin_ports.tell(leader, report(leader, "Capturing", 0.5))
    counted(place, 0)
    told = eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    assert told.startswith("0 of 1 groups of 2 pods of this spec serve")
    eventually(place.reached("GraphsCaptured", "False", "Capturing"))
    assert admin_ports.reads_of(worker) == 0

    set_status(place.cluster, leader, running(True))
    admin_ports.tell(leader, report(leader))
    counted(place, 1)
    eventually(place.reached("Ready", "True", "Ready"), timeout=60)
    assert place.status()["pods"] == "1/1"
    selected = place.get("service", "demo")["spec"]["selector"]
    labelled = [one["metadata"]["name"] for one in place.all("pod", ",".join(f"{k}={v}" for k, v in selected.items()))]
    assert labelled == [leader["metadata"]["name"]]
    eventually(hasty.idle)
    quiet = audit.mark()
    place.annotate("gisvc", "demo", {"anything": "at all"})
    eventually(hasty.idle)
    assert audit.since(quiet).by(USER).of(place.namespace).writes() == ()
    assert hasty.said("the API server changed fields we applied", place) == []

    place.merge("leaderworkerset", "demo-group", {"spec": {"leaderWorkerTemplate": {"size": 3}}})
    eventually(lambda: place.get("leaderworkerset", "demo-group")["spec"]["leaderWorkerTemplate"]["size"] == 2)
    drop_crd(place.cluster, Foreign.LeaderWorkerSet.crd)
    eventually(place.reached("Accepted", "False", "LeaderWorkerSetMissing"), timeout=60)
    assert audit.since(mark).by(USER).forbidden() == ()


def test_a_worker_that_ends_is_the_reason_of_its_groups_restart(
    grouped: Place, admin_ports: AdminPorts, eventually: Eventually
) -> None:
    _, worker = serving(grouped, admin_ports, eventually)
    set_status(grouped.cluster, worker, crashed(31, "RankDied: rank 1 has ended: signal SIGKILL"))
    counted(grouped, 0)
    told = eventually(grouped.reached("WorkloadAvailable", "False", "RankDied"))
    assert told.startswith("pod demo-group-0-1: rank 1 has ended: signal SIGKILL")
    for one in pods(grouped):  # the set of each makes it again, as the group's controller has it done
        grouped.kubectl("delete", "pod", one["metadata"]["name"], "--grace-period=0", "--force")
    eventually(lambda: len(pods(grouped)) == 2)
    told = eventually(grouped.reached("WorkloadAvailable", "False", "Restarting"))
    assert "a group starts again after RankDied: rank 1 has ended: signal SIGKILL" in told
    serving(grouped, admin_ports, eventually)
    assert "lastFailure" not in grouped.status()


def test_the_pods_of_one_node_stay_until_the_group_is_ready_and_go_then(
    hasty: Operator, place: Place, admin_ports: AdminPorts, eventually: Eventually
) -> None:
    serve(place, Foreign.LeaderWorkerSet)
    place.apply(**ONE)
    eventually(lambda: place.names("deployments"))
    place.apply(**TWO)
    eventually(lambda: place.names("leaderworkersets"), timeout=60)
    eventually(hasty.idle)
    assert place.names("deployments") == ["deployment.apps/demo"]
    serving(place, admin_ports, eventually)
    eventually(lambda: not place.names("deployments"))
    place.apply(**ONE)
    eventually(lambda: place.names("deployments"))
    eventually(hasty.idle)
    assert place.names("leaderworkersets") == ["leaderworkerset.leaderworkerset.x-k8s.io/demo-group"]
