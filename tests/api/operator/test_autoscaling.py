"""Who decides on the number of pods, on a cluster whose controllers decide as well: no pod is lost on the way."""

from collections.abc import Callable
from typing import Any

from tests.api.operator.process import USER, Operator
from tests.audit import Audit
from tests.places import Place
from tests.sim.history import History

HPA: dict[str, Any] = {"autoscaling": {"min": 2, "max": 20, "metric": "WaitingRequests", "target": 4}}


def replicas(place: Place) -> int:
    count: int = place.get("deployment", "demo")["spec"]["replicas"]
    return count


def claimants(place: Place) -> set[str]:
    """Who claims the number of pods."""
    entries = place.get("deployment", "demo")["metadata"]["managedFields"]
    return {entry["manager"] for entry in entries if "f:replicas" in entry["fieldsV1"].get("f:spec", {})}


def scales_to(place: Place, count: int) -> Callable[[], bool]:
    return lambda: replicas(place) == count


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
        place.kubectl("scale", "deployment", "demo", "--replicas=9")  # as its autoscaler does
        settled()
        assert replicas(place) == 9
        place.apply(replicas=8)
        eventually(lambda: place.names("horizontalpodautoscalers") == [])
        eventually(scales_to(place, 8))
        settled()
        assert claimants(place) == {"graphpod"}
    counts = [found["spec"]["replicas"] for found in history.seen]
    assert min(counts) == 8
    assert max(counts) == 9
    assert len(place.pods()) == 8


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
    place.kubectl("delete", "hpa", "demo")
    eventually(lambda: place.names("horizontalpodautoscalers"))
    settled()
    written = [write.resource for write in audit.since(mark).by(USER).of(place.namespace).writes()]
    assert [name for name in written if name not in ("events", "inferenceservices")] == ["horizontalpodautoscalers"]


def test_a_suspended_service_has_no_autoscaler_and_no_pod_and_resumes_with_its_fewest(
    operator: Operator, place: Place, eventually, audit: Audit, settled: Callable[[], None]
) -> None:
    place.apply(replicas=1, **HPA)
    eventually(lambda: len(place.pods()) == 2)
    place.kubectl("scale", "deployment", "demo", "--replicas=6")
    eventually(lambda: len(place.pods()) == 6)
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
