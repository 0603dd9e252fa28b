"""The annotations graphpod.dev/sleep and graphpod.dev/reload, with stub engines behind the pods' admin ports."""

from collections.abc import Callable
from typing import Any

from graphpod_operator.api.names import RELOAD_ANNOTATION as RELOAD
from graphpod_operator.api.names import SLEEP_ANNOTATION as SLEEP
from tests.api.operator.pods import AdminPorts, report, running, set_status
from tests.api.operator.process import USER
from tests.audit import Audit
from tests.places import Place


def test_a_service_sleeps_takes_no_new_weights_meanwhile_and_wakes(
    place: Place, operator: Any, admin_ports: AdminPorts, audit: Audit, eventually, settled: Callable[[], None]
) -> None:
    place.apply(engine={"sleep": True, "reload": True})
    eventually(lambda: len(place.pods()) == 1)
    (pod,) = place.pods()
    admin_ports.tell(pod, report(pod))
    admin_ports.obey(pod)
    set_status(place.cluster, pod, running(ready=True))
    eventually(place.reached("Ready", "True", "Ready"))
    settled()
    mark = audit.mark()

    place.annotate("gisvc", "demo", {SLEEP: "true"})
    eventually(lambda: admin_ports.orders(pod) == ["/sleep?wait=0"])
    set_status(place.cluster, pod, running(ready=False))
    eventually(place.reached("Asleep", "True", "Asleep"))
    assert "graphpod.dev/sleep-" in eventually(place.reached("Ready", "False", "Sleeping"))
    status = place.status()
    assert (status["phase"], status["weights"]["asleep"]) == ("Sleeping", "1/1")
    eventually(lambda: [one["reason"] for one in place.all("event")].count("Sleeping") == 1)
    place.annotate("gisvc", "demo", {RELOAD: "v2"})
    eventually(place.reached("ModelAvailable", "False", "ReloadPending"))
    settled()
    assert admin_ports.orders(pod) == ["/sleep?wait=0"]

    place.annotate("gisvc", "demo", {SLEEP: None})
    eventually(lambda: admin_ports.orders(pod)[1:2] == ["/wake?wait=0"])
    set_status(place.cluster, pod, running(ready=True))
    eventually(lambda: admin_ports.orders(pod)[2:] == ["/reload?wait=0&revision=v2"])
    eventually(place.reached("ModelAvailable", "True", "Reloaded"))
    eventually(place.reached("Ready", "True", "Ready"))
    assert place.status()["weights"]["pods"][0]["revision"] == "v2"

    written = audit.since(mark).by(USER).of(place.namespace).writes()
    assert {request.kind for request in written} == {"inferenceservices/status", "events"}


def test_a_service_that_did_not_opt_in_says_so_and_serves_on(
    place: Place, operator: Any, admin_ports: AdminPorts, eventually
) -> None:
    place.apply()
    eventually(lambda: len(place.pods()) == 1)
    (pod,) = place.pods()
    admin_ports.tell(pod, report(pod))
    admin_ports.obey(pod)
    set_status(place.cluster, pod, running(ready=True))
    eventually(place.reached("Ready", "True", "Ready"))
    place.annotate("gisvc", "demo", {SLEEP: "true"})
    assert "spec.engine.sleep" in eventually(place.reached("Asleep", "False", "SleepRefused"))
    place.annotate("gisvc", "demo", {RELOAD: "v2"})
    assert "spec.engine.reload" in eventually(place.reached("Ready", "False", "ReloadRefused"))
    assert place.condition("Available")[:2] == ("True", "Serving")
    place.annotate("gisvc", "demo", {SLEEP: None, RELOAD: None})
    eventually(place.reached("Ready", "True", "Ready"))
    assert admin_ports.orders(pod) == []


def test_an_autoscaler_keeps_the_pods_of_a_service_that_sleeps_and_its_budget_holds_up_no_drain(
    place: Place, operator: Any, eventually
) -> None:
    def behavior() -> Any:
        return place.get("horizontalpodautoscaler", "demo")["spec"].get("behavior")

    def evicted() -> str:
        policy: str = place.get("poddisruptionbudget", "demo")["spec"]["unhealthyPodEvictionPolicy"]
        return policy

    place.apply(engine={"sleep": True}, autoscaling={"min": 2, "max": 4, "target": 4})
    eventually(lambda: len(place.pods()) == 2)
    assert (behavior(), evicted()) == (None, "IfHealthyBudget")
    place.annotate("gisvc", "demo", {SLEEP: "true"})
    eventually(place.reached("ScalingReady", "False", "AutoscalerHeld"))
    assert {way: rules["selectPolicy"] for way, rules in behavior().items()} == {
        "scaleUp": "Disabled",
        "scaleDown": "Disabled",
    }
    assert evicted() == "AlwaysAllow"
    place.annotate("gisvc", "demo", {SLEEP: None})
    eventually(lambda: behavior() is None and evicted() == "IfHealthyBudget")
