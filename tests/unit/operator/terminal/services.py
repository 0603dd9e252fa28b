"""Services as tests of the terminal show them."""

from typing import Any

from graphpod_operator.terminal.values.service import ServiceState

Manifest = dict[str, Any]


def service(name: str = "demo", phase: str = "Ready", namespace: str = "team-a", **status: Any) -> Manifest:
    graph = {
        "prefill": {"requested": "Auto", "planned": "Breakable", "effective": "Breakable"},
        "decode": {"requested": "Auto", "planned": "Full", "effective": "Full"},
        "captured": "26/26",
    }
    return {
        "metadata": {"namespace": namespace, "name": name, "generation": 1},
        "status": {"observedGeneration": 1, "phase": phase, "pods": "2/2", "graph": graph, **status},
    }


def state(name: str = "demo", **changes: Any) -> ServiceState:
    return ServiceState.of(service(name, **changes))
