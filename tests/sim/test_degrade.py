"""Contract 15: an engine that dies in captures is given weaker plans by the operator, and serves."""

import json

from tests.sim.conftest import SimPlace
from tests.sim.history import History

FATAL = "oom:decode:4:fatal"
"""Every capture of decode ends the process."""


def test_an_engine_that_dies_in_captures_serves_by_a_weaker_plan_and_says_why(place: SimPlace, eventually) -> None:
    with History.of(place) as history:
        place.bring_up(fault=FATAL, graph={"retries": 0})
        eventually(place.reached("Ready", "True", "Degraded"), timeout=60)
        graph = place.status()["graph"]
        assert (graph["decode"]["planned"], graph["decode"]["effective"]) == ("Full", "Disabled")
        assert graph["prefill"]["effective"] == "Breakable"
        assert place.condition("Degraded")[:2] == ("True", "StartsDied")
        assert len(_templates(place)) == 3, "Full, Breakable, Disabled"

        before = place.get("deployment", "demo")
        wiped = {"op": "remove", "path": "/status"}
        place.kubectl("patch", "gisvc", "demo", "--subresource=status", "--type=json", "-p", json.dumps([wiped]))
        eventually(place.reached("Ready", "True", "Degraded"))
        assert place.get("deployment", "demo")["metadata"]["generation"] == before["metadata"]["generation"]

    told = place.kubectl("get", "events", "--field-selector=reason=StartsDied", "-o", "name").split()
    assert len(told) == 2, "one event a step"
    assert any(row.get("Degraded") == "True" for row in history.conditions("demo"))


def _templates(place: SimPlace) -> set[str]:
    found = json.loads(place.kubectl("get", "replicasets", "-o", "json"))["items"]
    return {one["metadata"]["labels"]["pod-template-hash"] for one in found}
