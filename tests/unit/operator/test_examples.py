"""examples/ works today; examples/planned/ is refused, and the first lines of each file say what is missing."""

from pathlib import Path

import pytest
import yaml

from graphpod_operator.api.names import ENGINE_TYPE, OWNER_LABEL
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.pod.container import HTTP_PORT
from graphpod_operator.render.service import API_PATH
from graphpod_policy.metrics import BY_NAME, Kind
from tests.unit.operator.objects import INSTALLED, UID

FOLDER = Path(__file__).parents[3] / "examples"
GATEWAY = FOLDER / "gateway"
"""Objects of others that go with a service."""
EXAMPLES = sorted(path for path in FOLDER.rglob("*.yaml") if path.parent != GATEWAY)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_works_exactly_when_it_does_not_lie_among_the_planned_ones(example: Path) -> None:
    text = example.read_text()
    comment = " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("#"))
    manifest = yaml.safe_load(text)
    manifest["metadata"] |= {"namespace": "ns", "uid": UID, "resourceVersion": "1", "generation": 1}
    outcome = desire(PlanInput(Service.of(manifest), INSTALLED))
    if example.parent.name == "planned":
        assert "Not built in this version:" in comment
        assert isinstance(outcome, Refused)
        assert outcome.reason is Reason.FeatureNotBuilt
    else:
        assert "uilt" not in comment
        assert isinstance(outcome, Desired), outcome
    assert manifest["metadata"]["name"] == example.stem


def test_the_pickers_configuration_names_metrics_and_labels_that_an_engine_has() -> None:
    config = yaml.safe_load((GATEWAY / "endpoint-picker.yaml").read_text())
    named = {plugin["type"]: plugin.get("parameters", {}) for plugin in config["plugins"]}
    (engine,) = named["core-metrics-extractor"]["engineConfigs"]
    assert engine["name"] == ENGINE_TYPE[1]
    gauges = ("queuedRequestsSpec", "runningRequestsSpec", "kvUsageSpec", "cacheInfoSpec")
    for field in gauges:
        assert BY_NAME[engine[field]].kind is Kind.Gauge
    assert all(BY_NAME[engine[field]].labels == () for field in gauges[:3]), "a picker reads one series"
    labels = {engine["cacheBlockSizeLabelName"], engine["cacheNumBlocksLabelName"]}
    assert labels == set(BY_NAME[engine["cacheInfoSpec"]].labels)
    referred = [row["pluginRef"] for profile in config["schedulingProfiles"] for row in profile["plugins"]]
    sources = [row["pluginRef"] for row in config["dataLayer"]["sources"]]
    assert {*referred, *sources} < named.keys()


def test_the_pool_selects_the_pods_of_its_service_at_their_port_and_the_route_leads_to_the_api() -> None:
    pool, route = yaml.safe_load_all((GATEWAY / "inference-pool.yaml").read_text())
    assert pool["spec"]["selector"]["matchLabels"] == {OWNER_LABEL: "chat"}
    assert pool["spec"]["targetPorts"] == [{"number": HTTP_PORT}]
    (rule,) = route["spec"]["rules"]
    assert [match["path"] for match in rule["matches"]] == [{"type": "PathPrefix", "value": API_PATH}]
    (backend,) = rule["backendRefs"]
    assert (backend["kind"], backend["name"]) == (pool["kind"], pool["metadata"]["name"])
    assert backend["group"] == pool["apiVersion"].partition("/")[0]
