"""Services whose engines start as they should, one and many."""

import json

from tests.places import service
from tests.sim.conftest import Stage, annotations

MANY = 50


def test_a_service_becomes_ready_with_every_graph_captured(stage: Stage, eventually) -> None:
    stage.bring_up()
    eventually(stage.reached("Ready", "True", "Ready"))
    graph = stage.status()["graph"]
    captured, planned = graph["captured"].split("/")
    assert captured == planned
    assert int(planned) > 0
    assert (graph["prefill"]["effective"], graph["decode"]["effective"]) == ("Breakable", "Full")


def test_fifty_services_become_ready_at_once(stage: Stage, eventually) -> None:
    names = [f"s{number}" for number in range(MANY)]
    items = [service(name, podTemplate=annotations()) for name in names]
    stage.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def all_ready() -> bool:
        found = json.loads(stage.kubectl("get", "gisvc", "-o", "json"))["items"]
        ready = [
            row
            for entry in found
            for row in entry.get("status", {}).get("conditions", ())
            if (row["type"], row["status"]) == ("Ready", "True")
        ]
        assert len(ready) == MANY, f"{len(ready)} of {MANY} are Ready"
        return True

    eventually(all_ready, timeout=60)


def test_an_engine_that_is_mended_is_proved_and_the_service_ready(stage: Stage, eventually) -> None:
    stage.bring_up(fault="stuck:Capturing:0.5s")
    eventually(stage.reached("WorkloadAvailable", "False", "EngineStuck"))
    stage.bring_up()
    eventually(stage.reached("Ready", "True", "Ready"))
    assert "lastFailure" not in stage.status()
