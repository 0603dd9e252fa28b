"""What the end-to-end test of alerts stands on: rules whose durations alone differ, and engines that can fault."""

import importlib
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from monitoring.rules import ALERTS
from monitoring.rules.file import groups
from tests.e2e.monitoring.faults import ENGINE, ENGINES_FOLLOW, OPERATOR, SLOW
from tests.e2e.monitoring.stack import QUICK
from tests.eventually import Eventually
from tests.monitoring import scaled
from tests.monitoring.actor import ADMIN_PORT, Actor, Load
from tests.unit.operator.objects import planned

ADDRESS = "127.78.0.1"


def test_the_operators_times_that_are_divided_exist() -> None:
    """A name that is wrong would add a constant that nothing reads."""
    for module, name in re.findall(
        r"^(\w+)\.([A-Z_]+) = ", QUICK.replace(" = warmup_poller", " =\nwarmup_poller"), re.M
    ):
        (package,) = re.findall(rf"^from (\S+) import .*\b{module}\b", QUICK, re.MULTILINE)
        assert hasattr(importlib.import_module(f"{package}.{module}"), name), f"{module}.{name}"
    done = subprocess.run([sys.executable, "-c", QUICK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def rule(name: str, made: list[dict]) -> dict:
    return next(one for group in made for one in group["rules"] if name in (one.get("alert"), one.get("record")))


def test_durations_are_divided_and_nothing_else_is_changed() -> None:
    made = scaled.scaled(groups())
    stuck = rule("GraphpodWarmupStuck", made)
    assert (stuck["for"], stuck["expr"].count("[10s]")) == ("20s", 2)
    assert "offset 15s" in rule("GraphpodCaptureFailing", made)["expr"]
    assert rule("GraphpodCaptureFailing", made)["for"] == "0s"
    assert "> 15\n" in rule("GraphpodOperatorStalled", made)["expr"]
    assert "[180s]" in rule("service:graphpod_ttft_slow:ratio_rate3d", made)["expr"], "the name stays"
    assert "ratio_rate6h > " in rule("GraphpodTTFTBudgetBurn", made)["expr"]
    assert rule("GraphpodTTFTBudgetBurn", made)["for"] == f"{scaled.FLOOR_SECONDS}s"


def test_every_alert_has_a_fault() -> None:
    covered = {one.alert for one in (*ENGINE, *OPERATOR)} | set(ENGINES_FOLLOW) | {name for _, name in SLOW}
    assert covered == {alert.name for alert in ALERTS}


def test_promtool_accepts_the_scaled_rules(promtool: Path, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": scaled.scaled(groups())}))
    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def config() -> bytes:
    """engine.json of a service with a plain spec."""
    (found,) = [one.body["data"]["engine.json"] for one in planned().children if one.resource.kind == "ConfigMap"]
    data: bytes = found.encode()
    return data


@pytest.fixture
def acting(config: bytes, request: pytest.FixtureRequest) -> Iterator[Actor]:
    actor = Actor(ADDRESS, config, "uid", getattr(request, "param", ""), Load(padding=40))
    yield actor
    actor.close()


def get(path: str) -> str:
    header = {"X-Prometheus-Scrape-Timeout-Seconds": "1"}
    asked = urllib.request.Request(f"http://{ADDRESS}:{ADMIN_PORT}{path}", headers=header)
    with urllib.request.urlopen(asked, timeout=5) as reply:
        body: str = reply.read().decode()
    return body


def series(name: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by the values of its labels, in the order of their names."""
    families = text_string_to_metric_families(get("/metrics"))
    samples = [sample for family in families for sample in family.samples]
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for sample in samples
        if sample.name == name
    }


def test_an_acting_engine_moves_the_real_series_at_the_rates_it_was_given(
    acting: Actor, eventually: Eventually
) -> None:
    eventually(lambda: acting.ready, timeout=20)
    first = series("graphpod_graph_tokens_total")
    time.sleep(0.5)
    added = {key: value - first[key] for key, value in series("graphpod_graph_tokens_total").items()}
    decode = {key: value for key, value in added.items() if "decode" in key and value}
    assert sorted(next(word for word in key if word in ("real", "padding")) for key in decode) == ["padding", "real"]
    real, padding = (next(value for key, value in decode.items() if kind in key) for kind in ("real", "padding"))
    assert real == pytest.approx(4 * padding, abs=8)
    scrapes = json.loads(get("/warmup"))["scrapes"]
    assert scrapes["lastSecondsAgo"] is not None


@pytest.mark.parametrize("acting", ["capture:decode:4"], indirect=True)
def test_a_capture_that_fails_is_counted_once_and_weakens_the_policy(acting: Actor, eventually: Eventually) -> None:
    eventually(lambda: acting.ready, timeout=20)
    for _ in range(2):
        failures = series("graphpod_graph_capture_failures_total")
        assert {key: value for key, value in failures.items() if value} == {
            ("Recorder", "decode", "CaptureFailed"): 1.0
        }
    policies = [key for key in series("graphpod_graph_policy_info") if "decode" in key]
    assert policies == [("Recorder", "Disabled", "decode", "Full", "Auto")]
