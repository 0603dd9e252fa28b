"""Services are counted by their phase, and by whether a pod serves."""

from types import SimpleNamespace
from typing import Any

from graphpod_operator.cache.service import Service
from graphpod_operator.telemetry.metrics import PHASES, Meters
from tests.unit.operator.objects import inference_service


def test_a_rollout_in_which_a_pod_serves_is_counted_apart_from_a_start_in_which_none_does() -> None:
    def standing(name: str, **status: Any) -> Service:
        return Service.of(inference_service(name, status))

    def available(status: str) -> list[dict[str, str]]:
        rows = (("Ready", "False"), ("Available", status))
        return [{"type": name, "status": status, "reason": "Word"} for name, status in rows]

    services = [
        standing("rollout", phase="Starting", conditions=available("True")),
        standing("first", phase="Starting", conditions=available("False")),
        standing("second", phase="Starting", conditions=available("False")),
        standing("new"),
    ]
    meters = Meters.make()
    store: Any = SimpleNamespace(services=lambda: services, all_skipped=list)
    queue: Any = SimpleNamespace(depth=0, active=0, busy_seconds=list, longest_busy=lambda: 0.0)
    meters.watch(store, queue, lambda: True)
    assert {line for line in meters.text().decode().splitlines() if line.startswith(f"{PHASES}{{")} == {
        f'{PHASES}{{available="True",phase="Starting"}} 1.0',
        f'{PHASES}{{available="False",phase="Starting"}} 2.0',
        f'{PHASES}{{available="Unknown",phase=""}} 1.0',
    }
