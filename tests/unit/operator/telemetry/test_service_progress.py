"""What a written status counts as, once."""

from types import SimpleNamespace
from typing import Any

import pytest

from graphpod_operator.cache.key import Key
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.service_memory import ServiceMemory
from graphpod_operator.kube.resources import Resource
from graphpod_operator.telemetry import service_progress
from graphpod_operator.telemetry.metrics import (
    DEGRADATIONS,
    METHODS,
    OBJECTIVES,
    SKIPPED_NAMED,
    TIME_TO_READY,
    ZEROS,
    Meters,
)
from graphpod_policy.metrics import MOST_SERIES, OBJECTIVES_NAMED, Process

WEAKER = {"phase": "decode", "planned": "Full", "effective": "Disabled"}


def status(effective: str | None = "Full", ready: str = "False") -> dict[str, Any]:
    decode = {"planned": "Full"} | ({"effective": effective} if effective else {})
    return {"graph": {"decode": decode}, "conditions": [{"type": "Ready", "status": ready}]}


def seen(generation: int, status: dict[str, Any]) -> Service:
    return Service(Key("ns", "demo"), "uid", 1, generation, False, {}, status)


def count(meters: Meters, **labels: str) -> float:
    return meters.registry.get_sample_value(DEGRADATIONS, labels) or 0.0


@pytest.fixture
def meters() -> Meters:
    return Meters.make()


def test_a_policy_that_became_weaker_counts_once_until_it_changes_again(meters: Meters) -> None:
    memory = ServiceMemory("uid")
    for before, after in [(None, "Full"), ("Full", "Disabled"), ("Disabled", "Disabled"), ("Disabled", "Full")]:
        service_progress.written(status(before), status(after), memory, meters, 0)
    assert count(meters, **WEAKER) == 1
    service_progress.written(status("Full"), status("Disabled"), memory, meters, 0)
    assert count(meters, **WEAKER) == 2


def test_every_way_to_become_weaker_has_a_series_from_the_start(meters: Meters) -> None:
    assert len(ZEROS[DEGRADATIONS]) == 6
    assert WEAKER in ZEROS[DEGRADATIONS]
    assert f'{DEGRADATIONS}{{effective="Disabled",phase="decode",planned="Full"}} 0.0' in meters.text().decode()


def test_the_time_to_ready_is_that_of_a_generation_which_was_new(meters: Meters) -> None:
    memory = ServiceMemory("uid")
    service_progress.began(seen(1, {}), memory, 100.0)
    service_progress.began(seen(1, {"observedGeneration": 1}), memory, 103.0)
    service_progress.written(status(), status(), memory, meters, 105.0)
    service_progress.written(status(), status(ready="True"), memory, meters, 110.0)
    service_progress.written(status(ready="True"), status(ready="True"), memory, meters, 120.0)
    taken = [meters.registry.get_sample_value(f"{TIME_TO_READY}_{part}") for part in ("count", "sum")]
    assert taken == [1, 10]


def test_after_a_restart_of_the_operator_a_service_on_its_way_is_not_timed(meters: Meters) -> None:
    memory = ServiceMemory("uid")
    service_progress.began(seen(2, {"observedGeneration": 2}), memory, 100.0)
    service_progress.written(status(), status(ready="True"), memory, meters, 101.0)
    assert meters.registry.get_sample_value(f"{TIME_TO_READY}_count") == 0


def test_the_operators_series_stay_within_the_documented_bound(meters: Meters) -> None:
    """With every policy and Ready at once, more unreadable objects than are named, and every answer to every method."""
    policies = ("", "Full", "Piecewise", "Breakable", "Disabled")
    found = [
        SimpleNamespace(
            key=Key("ns", f"{ready}-{prefill}-{decode}-{number}".lower()),
            spec={"slo": {"ttft": "500ms", "itl": "50ms"}},
            status={
                "conditions": [{"type": "Ready", "status": ready}],
                "graph": {"prefill": {"effective": prefill}, "decode": {"effective": decode}},
            },
        )
        for ready in ("True", "False", "Unknown")
        for prefill in policies
        for decode in policies
        for number in range(10)
    ]
    assert len(found) > OBJECTIVES_NAMED
    skipped = [(Resource.Pod, "ns", f"pod-{number}") for number in range(SKIPPED_NAMED + 10)]
    store: Any = SimpleNamespace(services=lambda: found, all_skipped=lambda: skipped)
    queue: Any = SimpleNamespace(depth=0, active=0, busy_seconds=list, longest_busy=lambda: 0.0)
    meters.watch(store, queue, lambda: True)
    for code in ("200", "201", "400", "401", "403", "404", "409", "410", "422", "429", "500", "503", "504", "<error>"):
        for method in METHODS:
            meters.count("rest_client_requests_total", code=code, method=method)
    series = [line for line in meters.text().decode().splitlines() if not line.startswith("#")]
    assert sum(line.startswith(f"{OBJECTIVES}{{") for line in series) == 2 * OBJECTIVES_NAMED
    assert 300 < len(series) <= MOST_SERIES[Process.Operator]
