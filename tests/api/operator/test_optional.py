"""Kinds of others, by their own CRDs: absent at first, then there, then gone, under one operator that runs on; or there
while nothing of them can be listed, which holds up nothing else.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.binaries.foreign import Foreign
from tests.aggregation import served_at
from tests.api.operator.process import HASTY, USER, Operator, grant, serve
from tests.audit import Audit
from tests.crd import CRDS, drop_crd
from tests.eventually import Eventually
from tests.places import Place

LESSER = "user2"
MONITORED: dict[str, Any] = {"monitoring": {"enabled": True}}
SCALED: dict[str, Any] = {"autoscaling": {"max": 3, "target": 4, "provider": "KEDA"}}
GROUPED: dict[str, Any] = {"parallelism": {"pipeline": 2, "nodes": 2}}
NOWHERE = "https://127.0.0.1:9/convert"
"""Nothing listens there. The API server hides that: it cannot fill its own cache, and answers lists with 429."""
ROUTED: dict[str, Any] = {"networking": {"route": {"parentRefs": [{"name": "edge"}]}}}


def test_a_monitor_comes_with_its_kind_is_put_back_and_goes_with_it(
    hasty: Operator, place: Place, audit: Audit, eventually: Eventually
) -> None:
    mark = audit.mark()
    place.apply(**MONITORED)
    told = eventually(place.reached("MonitorReady", "False", "KindNotServed"))
    assert told.startswith("PodMonitor (monitoring.coreos.com/v1) is not served by this cluster")
    assert place.condition("Accepted")[:2] == ("True", "Accepted")

    process = hasty.process
    serve(place, Foreign.PodMonitor)
    eventually(place.reached("MonitorReady", "Unknown", "ScrapePending"), timeout=60)
    spec = place.get("podmonitor", "demo")["spec"]
    assert spec["podMetricsEndpoints"][0]["port"] == "admin"

    since = audit.mark()
    place.merge("podmonitor", "demo", {"spec": {"podMetricsEndpoints": [{"port": "http"}]}})
    eventually(lambda: place.get("podmonitor", "demo")["spec"] == spec)
    place.drop("podmonitor", "demo")
    eventually(lambda: place.names("podmonitors"))  # there is none until the operator has heard of it
    eventually(lambda: place.get("podmonitor", "demo")["spec"] == spec)
    eventually(hasty.idle)
    writes = audit.since(since).by(USER).of(place.namespace).writes()
    assert [write.resource for write in writes if write.resource == "podmonitors"] == ["podmonitors"] * 2

    drop_crd(place.cluster, Foreign.PodMonitor.crd)
    eventually(place.reached("MonitorReady", "False", "KindNotServed"), timeout=60)
    place.apply(**MONITORED, replicas=2)
    eventually(lambda: place.get("deployment", "demo")["spec"]["replicas"] == 2)
    place.apply()
    eventually(lambda: place.condition("MonitorReady") == ("", "", ""))
    assert hasty.process is process
    assert process.poll() is None
    assert audit.since(mark).by(USER).forbidden() == ()


def test_a_monitor_that_is_not_asked_for_any_more_is_deleted(
    hasty: Operator, place: Place, eventually: Eventually
) -> None:
    serve(place, Foreign.PodMonitor)
    place.apply(**MONITORED)
    eventually(place.reached("MonitorReady", "Unknown", "ScrapePending"), timeout=60)
    place.apply()
    eventually(lambda: not place.names("podmonitors"))


@pytest.mark.parametrize(
    ("foreign", "asked", "condition", "made"),
    [
        (Foreign.PodMonitor, MONITORED, "MonitorReady", ("Unknown", "ScrapePending")),
        (Foreign.HTTPRoute, ROUTED, "RouteReady", ("Unknown", "RoutePending")),
    ],
    ids=["PodMonitor", "HTTPRoute"],
)
def test_a_kind_without_rights_is_told_of_and_harms_nothing(
    operator: Operator,
    place: Place,
    tmp_path: Path,
    eventually: Eventually,
    foreign: Foreign,
    asked: dict[str, Any],
    condition: str,
    made: tuple[str, str],
) -> None:
    """Under a user of its own: what is denied to it is looked for in other tests."""
    grant(place.cluster, LESSER, place.namespace)
    role = yaml.safe_load(place.kubectl("get", "role", f"rbac-of-{LESSER}", "-o", "yaml"))
    lesser = [rule for rule in role["rules"] if rule["apiGroups"] != [foreign.crd.partition(".")[2]]]
    place.kubectl("patch", "role", f"rbac-of-{LESSER}", "--type=merge", "-p", json.dumps({"rules": lesser}))
    small = replace(
        operator,
        user=LESSER,
        namespaces=(place.namespace,),
        lease_namespace=place.namespace,
        log=tmp_path / "log",
        process=None,
        before=HASTY,
    )
    eventually.logs.append(small.log)
    operator.pause()
    try:
        small.start()
        serve(place, foreign)
        place.apply(**asked)
        told = eventually(place.reached(condition, "False", "KindNotGranted"), timeout=60)
        assert told.endswith("switch the kind on in the chart's values, under optionalKinds")
        assert place.condition("Accepted")[:2] == ("True", "Accepted")
        rules = json.dumps({"rules": role["rules"]})
        place.kubectl("patch", "role", f"rbac-of-{LESSER}", "--type=merge", "-p", rules)
        eventually(place.reached(condition, *made), timeout=60)
    finally:
        drop_crd(place.cluster, foreign.crd)
        small.pause()
    assert "Traceback" not in small.log.read_text()


@contextmanager
def stored_otherwise(place: Place, foreign: Foreign) -> Iterator[None]:
    """The kind is served, its only object is stored in another version, and the webhook that would convert it is away.
    Within the block: another namespace's object is enough.
    """
    crd = yaml.safe_load(foreign.manifest().read_text())
    (version,) = crd["spec"]["versions"]
    crd["spec"]["versions"] = [{**version, "storage": False}, {**version, "name": "v1stored"}]
    hook = {"clientConfig": {"url": NOWHERE}, "conversionReviewVersions": ["v1"]}
    place.cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(crd))
    try:
        stored = {"apiVersion": f"{crd['spec']['group']}/v1stored", "kind": crd["spec"]["names"]["kind"]}
        other = json.dumps({**stored, "metadata": {"name": "other", "namespace": "default"}, "spec": EXAMPLES[foreign]})
        Eventually(lambda: [place.cluster])(lambda: place.cluster.kubectl("apply", "-f", "-", input=other), timeout=30)
        place.cluster.merge(f"{CRDS}/{foreign.crd}", {"spec": {"conversion": {"strategy": "Webhook", "webhook": hook}}})
        yield
    finally:
        conversion_works(place, foreign)


def conversion_works(place: Place, foreign: Foreign) -> None:
    """Somebody repairs the webhook; in its place the API server converts by itself."""
    place.cluster.merge(f"{CRDS}/{foreign.crd}", {"spec": {"conversion": {"strategy": "None", "webhook": None}}})


CONTAINER = {"name": "one", "image": "one"}
EXAMPLES: dict[Foreign, dict[str, Any]] = {
    Foreign.PodMonitor: {"selector": {}, "podMetricsEndpoints": []},
    Foreign.LeaderWorkerSet: {
        "leaderWorkerTemplate": {"workerTemplate": {"spec": {"containers": [CONTAINER]}}},
        "startupPolicy": "LeaderCreated",
    },
}


def test_an_operator_starts_while_kinds_of_others_cannot_be_converted_and_uses_them_once_they_can(
    hasty: Operator, place: Place, eventually: Eventually
) -> None:
    hasty.pause()
    with stored_otherwise(place, Foreign.LeaderWorkerSet), stored_otherwise(place, Foreign.PodMonitor):
        place.apply("grouped", **GROUPED)
        place.apply("monitored", **MONITORED)
        hasty.start()
        eventually(hasty.idle, timeout=60)
        told = eventually(place.reached("Accepted", "False", "KindNotListed", "grouped"))
        assert told.startswith("spec.parallelism.nodes 2: LeaderWorkerSet cannot be listed: ")
        eventually(lambda: "KindNotListed" in {one["reason"] for one in place.all("event")})
        eventually(place.reached("MonitorReady", "False", "KindNotListed", "monitored"))
        eventually(place.reached("WorkloadAvailable", "False", "Starting", "monitored"))
        series = [f'graphpod_operator_kind_unlisted{{kind="{kind}"}}' for kind in ("LeaderWorkerSet", "HTTPRoute")]
        assert hasty.metrics(*series) == [1, 0]
        assert "an optional kind cannot be listed; trying again" in hasty.log.read_text()

        conversion_works(place, Foreign.LeaderWorkerSet)
        eventually(lambda: place.names("leaderworkersets"), timeout=60)
        eventually(place.reached("Accepted", "True", "Accepted", "grouped"))
        assert hasty.metrics(*series) == [0, 0]
        conversion_works(place, Foreign.PodMonitor)
        eventually(place.reached("MonitorReady", "Unknown", "ScrapePending", "monitored"), timeout=60)


def test_an_operator_starts_while_the_server_of_another_kind_is_down(
    hasty: Operator, place: Place, eventually: Eventually
) -> None:
    hasty.pause()
    listed = json.dumps(served_at("192.0.2.1", 9, name="keda", group="keda.sh", version="v1alpha1"))
    place.cluster.kubectl("apply", "-f", "-", input=listed)
    try:
        state = "jsonpath={.status.conditions[?(@.type=='Available')].status}"
        eventually(
            lambda: place.cluster.kubectl("get", "apiservice", "v1alpha1.keda.sh", "-o", state) == "False", timeout=60
        )
        place.apply("scaled", **SCALED)
        place.apply()
        hasty.start()
        eventually(hasty.idle, timeout=60)
        told = eventually(place.reached("Accepted", "False", "KindNotListed", "scaled"))
        assert told.startswith("spec.autoscaling.provider: ScaledObject cannot be listed: ")
        eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    finally:
        place.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=listed)
    told = eventually(place.reached("Accepted", "False", "KedaMissing", "scaled"), timeout=60)
    assert "is not served by this cluster" in told
