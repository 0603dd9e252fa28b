"""Kinds of others, by their own CRDs: absent at first, then there, then gone, under one operator that runs on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.binaries.foreign import Foreign
from tests.api.operator.process import HASTY, USER, Operator, grant, serve
from tests.audit import Audit
from tests.crd import drop_crd
from tests.eventually import Eventually
from tests.places import Place

LESSER = "user2"
MONITORED: dict[str, Any] = {"monitoring": {"enabled": True}}
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
