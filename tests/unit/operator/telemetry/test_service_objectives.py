"""What `spec.slo` promises is exported while the service is there, with the bound that alerts count by."""

from types import SimpleNamespace
from typing import Any

import pytest

from graphpod_operator.cache.service import Service
from graphpod_operator.telemetry.metrics import OBJECTIVES, Meters
from graphpod_operator.telemetry.service_objectives import Objective, objectives
from tests.unit.operator.objects import inference_service, plain_template, planned


@pytest.mark.parametrize(
    ("slo", "found"),
    [
        ({"ttft": "500ms"}, (Objective("ttft", "0.5", 0.5),)),
        ({"ttft": "300ms", "itl": "50ms"}, (Objective("ttft", "0.5", 0.3), Objective("itl", "0.05", 0.05))),
        ({"ttft": "1s"}, (Objective("ttft", "1.0", 1.0),)),
        ({"ttft": "5m"}, (Objective("ttft", "+Inf", 300.0),)),
        ({}, ()),
        (None, ()),
        ({"ttft": 7, "itl": "soon"}, ()),
        (["ttft"], ()),
    ],
)
def test_an_objective_counts_by_the_next_bound_of_its_histogram(slo: Any, found: tuple[Objective, ...]) -> None:
    assert objectives({"slo": slo}) == found


def test_the_series_come_change_and_go_with_the_service() -> None:
    def promising(**slo: str) -> Service:
        return Service.of(inference_service(slo=slo))

    def exported() -> list[str]:
        return [line for line in meters.text().decode().splitlines() if line.startswith(f"{OBJECTIVES}{{")]

    meters, services = Meters.make(), [promising(ttft="2s")]
    store: Any = SimpleNamespace(services=lambda: services, all_skipped=list)
    queue: Any = SimpleNamespace(depth=0, active=0, busy_seconds=list, longest_busy=lambda: 0.0)
    meters.watch(store, queue, lambda: True)
    labels = 'inferenceservice="demo",namespace="ns",objective="ttft"'
    assert exported() == [f'{OBJECTIVES}{{bound="2.0",{labels}}} 2.0']
    services[:] = [promising(ttft="3s")]
    assert exported() == [f'{OBJECTIVES}{{bound="3.0",{labels}}} 3.0']
    services[:] = [promising()]
    assert exported() == []
    services.clear()
    assert exported() == []


def test_an_objective_changes_no_pod() -> None:
    assert planned(slo={"ttft": "2s", "itl": "30ms"}).template == plain_template()
