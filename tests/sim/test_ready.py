"""Services whose engines start as they should, one and many."""

import json
from collections import Counter

from graphpod_operator.api.names import KIND
from graphpod_operator.kube.resources import AT_TIMES, CHILDREN
from tests.api.operator.process import USER
from tests.argocd import health
from tests.audit import Audit
from tests.places import service
from tests.sim.conftest import SimPlace, annotations

MANY = 20
MOST_WRITES = len(CHILDREN) - len(AT_TIMES) + 7
"""By the operator, for one service from create to Ready. Contract 9."""


def test_a_service_becomes_ready_with_every_graph_captured(place: SimPlace, eventually) -> None:
    place.bring_up()
    eventually(place.reached("Ready", "True", "Ready"))
    graph = place.status()["graph"]
    captured, planned = graph["captured"].split("/")
    assert captured == planned
    assert int(planned) > 0
    assert (graph["prefill"]["effective"], graph["decode"]["effective"]) == ("Breakable", "Full")
    place.kubectl("wait", "gisvc/demo", "--for=condition=Ready", "--timeout=10s")
    assert health(place.get("gisvc", "demo"))[0] == "Healthy", "to Argo CD"


def test_contract_9_twenty_services_become_ready_at_once_each_in_few_writes(place: SimPlace, eventually) -> None:
    audit = Audit(place.cluster.audit_log)
    mark = audit.mark()
    names = [f"s{number}" for number in range(MANY)]
    items = [service(name, podTemplate=annotations()) for name in names]
    place.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def all_ready() -> bool:
        found = json.loads(place.kubectl("get", "gisvc", "-o", "json"))["items"]
        ready = [
            row
            for entry in found
            for row in entry.get("status", {}).get("conditions", ())
            if (row["type"], row["status"]) == ("Ready", "True")
        ]
        assert len(ready) == MANY, f"{len(ready)} of {MANY} are Ready"
        return True

    eventually(all_ready, timeout=60)
    # a child has its service's name, or that and more; an Event has none in the log
    written = audit.since(mark).by(USER).of(place.namespace).writes()
    told = place.kubectl("get", "events", f"--field-selector=involvedObject.kind={KIND}", "-o", "json")
    events = Counter(event["involvedObject"]["name"] for event in json.loads(told)["items"])
    writes = Counter(one.name.partition("-")[0] for one in written if one.name) + events
    assert set(writes) == set(names)
    assert max(writes.values()) <= MOST_WRITES, writes.most_common(3)


def test_a_rollout_and_a_refused_edit_are_told_by_events(place: SimPlace, eventually) -> None:
    place.bring_up()
    eventually(place.reached("Ready", "True", "Ready"))
    first = place.status()["revision"]
    place.bring_up(engine={"maxBatch": 4})
    eventually(place.reached("Ready", "True", "Ready"))
    second = place.status()["revision"]
    place.bring_up(engine={"deterministic": True})
    eventually(place.reached("Ready", "False", "FeatureNotBuilt"))

    def told() -> set[tuple[str, str]]:
        events = (one for one in place.all("event") if one["involvedObject"]["kind"] == KIND)
        return {
            (one["reason"], revision) for one in events for revision in (first, second) if revision in one["message"]
        }

    expected = {("Planned", first), ("Ready", first), ("RolloutStarted", second), ("Ready", second)}
    eventually(lambda: told() - {("RolloutStarted", first)} == expected)
    assert place.status()["revision"] == second, "that of the pods"
    assert place.status()["graph"]["captured"] == "25/25"


def test_an_engine_that_is_mended_is_proved_and_the_service_ready(place: SimPlace, eventually) -> None:
    place.bring_up(fault="stuck:Capturing:0.5s")
    eventually(place.reached("WorkloadAvailable", "False", "EngineStuck"))
    place.bring_up()
    eventually(place.reached("Ready", "True", "Ready"))
    assert "lastFailure" not in place.status()
