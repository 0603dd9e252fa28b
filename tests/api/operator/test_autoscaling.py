"""Who decides on the number of pods, on a cluster whose controllers decide as well: no pod is lost on the way."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.operator.pods import AdminPorts
from tests.api.operator.process import OPTIONAL_RULES, USER, Operator, grant
from tests.audit import Audit
from tests.crd import drop_crd
from tests.eventually import Eventually
from tests.places import Place
from tests.sim.history import History

HPA: dict[str, Any] = {"autoscaling": {"min": 2, "max": 20, "metric": "WaitingRequests", "target": 4}}
KEDA: dict[str, Any] = {"autoscaling": {**HPA["autoscaling"], "provider": "KEDA"}}
PROMETHEUS = "http://prometheus.monitoring.svc:9090"
SCALED_OBJECTS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "scaledobjects.keda.sh"},
    "spec": {
        "group": "keda.sh",
        "scope": "Namespaced",
        "names": {"kind": "ScaledObject", "plural": "scaledobjects"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""The kind alone: nobody here acts on it."""


@pytest.fixture
def keda(
    operator: Operator, place: Place, admin_ports: AdminPorts, tmp_path: Path, eventually: Eventually
) -> Iterator[Place]:
    """A namespace of a cluster that serves ScaledObject, with an operator that may use it and knows a Prometheus."""
    user, cluster = "user3", place.cluster
    grant(cluster, user, place.namespace)
    rules = yaml.safe_load(OPTIONAL_RULES.read_text())["scaledObjects"]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "keda"}, "rules": rules}
    place.kubectl("apply", "-f", "-", input=json.dumps(role))
    place.kubectl("create", "rolebinding", "keda", "--role=keda", f"--user={user}")
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(SCALED_OBJECTS))
    eventually(lambda: "scaledobjects" in cluster.kubectl("api-resources", "--api-group=keda.sh", "-o", "name"))
    small = Operator(
        cluster,
        admin_ports.url,
        tmp_path / "log",
        user,
        (place.namespace,),
        lease_namespace=place.namespace,
        arguments=(f"--prometheus-url={PROMETHEUS}",),
    )
    eventually.logs.append(small.log)
    operator.pause()  # else it would do the work
    try:
        small.start()
        eventually(small.idle)
        yield place
    finally:
        drop_crd(cluster, SCALED_OBJECTS["metadata"]["name"])
        small.pause()
    assert "Traceback" not in small.log.read_text()


def replicas(place: Place) -> int:
    count: int = place.get("deployment", "demo")["spec"]["replicas"]
    return count


def claimants(place: Place) -> set[str]:
    """Who claims the number of pods."""
    entries = place.get("deployment", "demo")["metadata"]["managedFields"]
    return {entry["manager"] for entry in entries if "f:replicas" in entry["fieldsV1"].get("f:spec", {})}


def scales_to(place: Place, count: int) -> Callable[[], bool]:
    return lambda: replicas(place) == count


def told_all(history: History, place: Place) -> Callable[[], bool]:
    """A check: the watch has told every version up to the one that is now."""
    version = int(place.get("deployment", "demo")["metadata"]["resourceVersion"])
    return lambda: history.versions[-1].number >= version


def test_contract_6_eight_pods_that_pass_to_an_autoscaler_and_back_are_never_fewer(
    operator: Operator, place: Place, eventually, settled: Callable[[], None]
) -> None:
    place.apply(replicas=8)
    eventually(lambda: len(place.pods()) == 8)
    with History.of(place, "deployment") as history:
        place.apply(replicas=8, **HPA)
        eventually(place.reached("ScalingReady", "False", "AutoscalerIdle"))
        settled()
        assert (replicas(place), claimants(place)) == (8, {"graphpod-handover"})
        place.scale(9)  # as its autoscaler does
        settled()
        assert replicas(place) == 9
        place.apply(replicas=8)
        eventually(lambda: place.names("horizontalpodautoscalers") == [])
        eventually(scales_to(place, 8))
        settled()
        assert claimants(place) == {"graphpod"}
        eventually(told_all(history, place))
    counts = [found["spec"]["replicas"] for found in history.seen]
    assert min(counts) == 8
    assert max(counts) == 9
    eventually(lambda: len(place.pods()) == 8)  # the ninth goes in its controller's time


def test_an_autoscaled_service_begins_with_its_fewest_pods_and_has_a_budget_for_them(
    operator: Operator, place: Place, eventually, audit: Audit, settled: Callable[[], None]
) -> None:
    mark = audit.mark()
    place.apply(replicas=5, **HPA)
    eventually(place.reached("ScalingReady", "False", "AutoscalerIdle"))
    eventually(lambda: len(place.pods()) == 2)
    autoscaler = place.get("hpa", "demo")["spec"]
    assert autoscaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "demo"}
    assert (autoscaler["minReplicas"], autoscaler["maxReplicas"]) == (2, 20)
    assert place.names("poddisruptionbudgets") == ["poddisruptionbudget.policy/demo"]
    assert "2 pods" in place.condition("WorkloadAvailable")[2]
    settled()
    children = [write for write in audit.since(mark).by(USER).of(place.namespace).writes() if not write.subresource]
    assert len([write for write in children if write.resource != "events"]) == 7 + 2, "two for the hand-over"
    mark = audit.mark()
    place.drop("horizontalpodautoscaler", "demo")
    eventually(lambda: place.names("horizontalpodautoscalers"))
    settled()
    written = [write.resource for write in audit.since(mark).by(USER).of(place.namespace).writes()]
    assert [name for name in written if name not in ("events", "inferenceservices")] == ["horizontalpodautoscalers"]


def test_a_suspended_service_has_no_autoscaler_and_no_pod_and_resumes_with_its_fewest(
    operator: Operator, place: Place, eventually, audit: Audit, settled: Callable[[], None]
) -> None:
    place.apply(replicas=1, **HPA)
    eventually(lambda: len(place.pods()) == 2)
    place.scale(6)
    eventually(lambda: len(place.pods()) == 6)
    settled()  # the Deployment has its pods before it is handed over
    mark = audit.mark()
    place.apply(suspend=True, **HPA)
    eventually(lambda: place.pods() == [])
    assert "suspend" in eventually(place.reached("Ready", "False", "Suspended"))
    assert place.condition("Stalled") == ("", "", "")
    assert place.status()["phase"] == "Suspended"
    order = [(write.verb, write.resource) for write in audit.since(mark).by(USER).of(place.namespace).writes()]
    assert order.index(("delete", "horizontalpodautoscalers")) < order.index(("patch", "deployments"))
    place.apply(**HPA)
    eventually(lambda: place.names("horizontalpodautoscalers"))
    eventually(lambda: len(place.pods()) == 2)


def test_an_autoscaler_of_somebody_else_is_a_collision_and_nothing_is_touched(
    operator: Operator, place: Place, eventually
) -> None:
    place.kubectl("create", "deployment", "mine", "--image=x", "--replicas=0")
    place.kubectl("autoscale", "deployment", "mine", "--name=demo", "--max=3")
    theirs = place.get("hpa", "demo")["metadata"]["uid"]
    place.apply(**HPA)
    assert "HorizontalPodAutoscaler" in eventually(place.reached("Accepted", "False", "NameCollision"))
    assert place.names("deployments,services") == []
    assert place.get("hpa", "demo")["metadata"]["uid"] == theirs


def test_contract_6_eight_pods_from_fixed_to_an_hpa_to_keda_to_fixed_are_never_fewer(
    keda: Place, eventually: Eventually
) -> None:
    kinds = "horizontalpodautoscalers,scaledobjects"
    keda.apply(replicas=8)
    eventually(lambda: len(keda.pods()) == 8)
    with History.of(keda, "deployment") as history:
        keda.apply(**HPA)
        eventually(keda.reached("ScalingReady", "False", "AutoscalerIdle"))
        eventually(lambda: keda.names(kinds) == ["horizontalpodautoscaler.autoscaling/demo"])
        keda.apply(**KEDA)
        eventually(keda.reached("ScalingReady", "Unknown", "AutoscalerPending"))
        eventually(lambda: keda.names(kinds) == ["scaledobject.keda.sh/demo"])
        works = {"status": {"conditions": [{"type": "Ready", "status": "True", "message": "is ready"}]}}
        keda.merge("scaledobject", "demo", works, "status")
        told = eventually(keda.reached("ScalingReady", "True", "Autoscaled"))
        assert told == "KEDA keeps 2 to 20 pods, 4 WaitingRequests each; spec.replicas is ignored"
        assert claimants(keda) == {"graphpod-handover"}
        keda.scale(11)
        keda.apply(replicas=8)
        eventually(lambda: keda.names(kinds) == [])
        eventually(lambda: claimants(keda) == {"graphpod"})
        eventually(scales_to(keda, 8))
        eventually(told_all(history, keda))
    counts = [found["spec"]["replicas"] for found in history.seen]
    assert (min(counts), max(counts)) == (8, 11)


def test_a_paused_service_keeps_neither_its_autoscaler_nor_its_number_until_it_goes_on(
    keda: Place, eventually: Eventually, audit: Audit
) -> None:
    keda.apply(**KEDA)
    eventually(lambda: keda.names("scaledobjects"))
    eventually(lambda: claimants(keda) == {"graphpod-handover"})
    keda.annotate("gisvc", "demo", {"graphpod.dev/paused": "true"})
    eventually(keda.reached("Accepted", "True", "Paused"))
    mark = audit.mark()
    keda.drop("scaledobject", "demo")
    keda.apply(replicas=8)
    eventually(lambda: keda.status()["observedGeneration"] == keda.get("gisvc", "demo")["metadata"]["generation"])
    written = {write.kind for write in audit.since(mark).by("user3").of(keda.namespace).writes()}
    assert written <= {"inferenceservices/status", "events", "leases"}
    assert (replicas(keda), keda.names("scaledobjects")) == (2, [])
    keda.annotate("gisvc", "demo", {"graphpod.dev/paused": None})
    eventually(scales_to(keda, 8))


def test_keda_that_is_not_there_is_asked_for_in_vain_and_the_pods_stay(applied: Place, eventually: Eventually) -> None:
    applied.apply(**KEDA)
    told = eventually(applied.reached("Accepted", "False", "KedaMissing"))
    assert "ScaledObject (keda.sh/v1alpha1) is not served by this cluster" in told
    assert told.endswith("install KEDA, or set spec.autoscaling.provider: HPA")
    assert len(applied.pods()) == 1
