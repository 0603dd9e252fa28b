"""Every fault fires its alert and the listed consequences only, in a real Alertmanager; a healthy hour fires none."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from monitoring.rules import ALERTS
from tests.e2e.monitoring.faults import (
    ENGINE,
    ENGINES_FOLLOW,
    HEALTHY,
    MONITORED,
    OPERATOR,
    PARTS,
    SLOW,
    TEAM,
    EngineFault,
    OperatorFault,
    Outcome,
)
from tests.e2e.monitoring.stack import Stack, stack
from tests.monitoring.scaled import FACTOR, FLOOR_SECONDS, LONG_FACTOR, LONG_SECONDS, SCRAPE_SECONDS
from tests.places import Place

pytestmark = pytest.mark.slow
RESULTS = "GRAPHPOD_ALERTS"
"""Environment variable: the file for what was seen."""
HOUR_SECONDS = 3600 / FACTOR
FIRE_SECONDS = 120.0
"""The longest alert lasts an hour, a minute here, after a window that fills; the rest is for a busy machine."""
CALM_SECONDS = 120.0
SETTLE_SECONDS = 6.0


class Record:
    """Outcomes by fault, written as they come."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.healthy: list[str] | None = None

    def write(self) -> None:
        if (path := os.environ.get(RESULTS)) is None:
            return
        fired = {name for one in self.outcomes if one.holds for name in one.seen}
        names = [alert.name for alert in ALERTS]
        found = {
            "factor": FACTOR,
            "scrapeSeconds": SCRAPE_SECONDS,
            "floorSeconds": FLOOR_SECONDS,
            "longFactor": LONG_FACTOR,
            "longSeconds": LONG_SECONDS,
            "alerts": len(names),
            "fired": sum(name in fired for name in names),
            "notFired": [name for name in names if name not in fired],
            "healthyHour": self.healthy,
            "faults": [asdict(one) | {"holds": one.holds} for one in self.outcomes],
        }
        Path(path).write_text(json.dumps(found, indent=2) + "\n")


@pytest.fixture(scope="module")
def record() -> Record:
    return Record()


@pytest.fixture(scope="module")
def watched(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One healthy service."""
    print(f"\ndurations of the rules are divided by {FACTOR}, from 6 h on by {LONG_FACTOR}; at least {FLOOR_SECONDS} s")
    with stack(tmp_path_factory.mktemp("stack"), PARTS) as made:
        place = made.place(TEAM)
        place.apply(HEALTHY, **MONITORED)
        made.eventually(place.reached("Ready", "True", "Ready", HEALTHY), timeout=120)
        made.eventually(lambda: f"{TEAM}/{HEALTHY}" in made.select().pod_monitors)
        made.eventually(lambda: len(made.targets()) == 3 and set(made.targets().values()) == {"up"}, timeout=60)
        made.eventually(lambda: made.firing() == set() or None, timeout=CALM_SECONDS)
        yield made


def test_a_healthy_hour_fires_none(watched: Stack, record: Record) -> None:
    seen: set[tuple[str, str]] = set()
    end = time.monotonic() + HOUR_SECONDS
    while time.monotonic() < end:
        seen |= watched.firing()
        time.sleep(1)
    record.healthy = sorted(name for name, _ in seen)
    record.write()
    assert watched.kubelet.trouble is None
    assert seen == set()


@pytest.fixture(scope="module")
def faulty(watched: Stack, record: Record) -> dict[str, Outcome]:
    """What was seen of all faulty engines, which run together: each is a service of its own. They are gone then."""
    watched.eventually(lambda: watched.firing() == set() or None, timeout=CALM_SECONDS)
    place = Place(watched.cluster, TEAM)
    for one in ENGINE:
        place.apply(one.service, **MONITORED)
    watched.eventually(lambda: len(watched.select().pod_monitors) == len(PARTS), timeout=120)
    found = {one.service: Outcome(one.fault, one.alert, list(one.follow)) for one in ENGINE}
    found[HEALTHY] = Outcome("none: beside the others", "", [])
    found[""] = Outcome("a service is not Ready", ENGINES_FOLLOW[0], [])
    record.outcomes += [outcome for name, outcome in found.items() if name != HEALTHY]
    began = time.monotonic()
    while time.monotonic() < began + FIRE_SECONDS:
        for name, service in watched.firing():
            outcome = found[service]
            if name not in outcome.seen:
                outcome.seen.append(name)
            if name == outcome.alert and outcome.seconds is None:
                outcome.seconds = round(time.monotonic() - began, 1)
        waits = any(outcome.alert and outcome.seconds is None for outcome in found.values())
        waits = waits or any(name not in found[service].seen for service, name in SLOW)
        if not waits and time.monotonic() > began + HOUR_SECONDS + SETTLE_SECONDS:
            break
        time.sleep(0.5)
    record.write()
    assert watched.kubelet.trouble is None
    for one in ENGINE:
        place.kubectl("delete", "gisvc", one.service, "--wait=false")
    return found


@pytest.mark.parametrize("one", ENGINE, ids=lambda one: one.service)
def test_a_fault_of_an_engine_fires_its_alert_and_what_follows(one: EngineFault, faulty: dict[str, Outcome]) -> None:
    outcome = faulty[one.service]
    assert one.alert in outcome.seen, outcome
    assert outcome.holds, f"not listed: {set(outcome.seen) - {one.alert, *one.follow}}"


@pytest.mark.parametrize(("service", "alert"), SLOW)
def test_the_alert_over_three_days_fires_too(service: str, alert: str, faulty: dict[str, Outcome]) -> None:
    assert alert in faulty[service].seen


def test_a_healthy_service_and_the_operator_beside_faulty_engines_fire_nothing_else(faulty: dict[str, Outcome]) -> None:
    assert faulty[HEALTHY].seen == []
    assert faulty[""].seen == list(ENGINES_FOLLOW)


@pytest.mark.parametrize("one", OPERATOR, ids=lambda one: one.alert)
def test_a_fault_of_the_operator_fires_its_alert_and_what_follows(
    one: OperatorFault, watched: Stack, record: Record
) -> None:
    watched.eventually(lambda: watched.firing() == set() or None, timeout=CALM_SECONDS)
    outcome = Outcome(one.fault, one.alert, list(one.follow))
    record.outcomes.append(outcome)
    began, seen = time.monotonic(), set()
    with one.during(watched):
        while time.monotonic() < began + FIRE_SECONDS:
            seen |= {name for name, _ in watched.firing()}
            if one.alert in seen and outcome.seconds is None:
                outcome.seconds = round(time.monotonic() - began, 1)
            if outcome.seconds is not None and time.monotonic() > began + outcome.seconds + SETTLE_SECONDS:
                break
            time.sleep(0.5)
    outcome.seen = sorted(seen)
    record.write()
    assert watched.kubelet.trouble is None
    assert one.alert in outcome.seen, watched.eventually.told()
    assert outcome.holds, f"not listed: {seen - {one.alert, *one.follow}}"
