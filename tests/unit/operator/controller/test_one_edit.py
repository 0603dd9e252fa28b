"""One edit, followed through the code: which packages the controller calls for it, and in which order."""

import sys
from itertools import groupby
from types import FrameType
from typing import Any

from graphpod_operator.kube.resources import Resource
from tests.unit.operator.objects import report
from tests.unit.operator.world import World

STEPS = ("watch", "plan", "revisions", "apply", "revisions", "observe", "status")
"""docs/architecture.md, *One edit, followed through the code*, has them in this order."""
VALUES = {"api", "cache", "conditions", "kube", "telemetry"}
"""What every step reads and writes: names, the store, the clock, ports, metrics."""


def _package(frame: FrameType | None) -> str:
    names = frame.f_globals.get("__name__", "").split(".") if frame is not None else []
    return names[1] if names[:1] == ["graphpod_operator"] and len(names) > 1 else ""


class Calls:
    """Packages of the operator in the order in which the controller calls them."""

    def __init__(self) -> None:
        self._called: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and _package(frame.f_back) == "controller":
            self._called.append(_package(frame))

    @property
    def steps(self) -> tuple[str, ...]:
        """Without repetitions in a row."""
        called = (name for name in self._called if name and name != "controller" and name not in VALUES)
        return tuple(name for name, _ in groupby(called))


async def test_an_edit_passes_each_package_once_on_its_way_down_and_once_on_its_way_up(world: World) -> None:
    world.ports.report = report()
    world.put_pod(ready=True)
    await world.settle()
    world.cluster.writes.clear()
    await world.edit(engine={"maxBatch": 16})
    calls = Calls()
    sys.setprofile(calls)
    try:
        await world.reconcile()
    finally:
        sys.setprofile(None)
    assert {Resource.ConfigMap.kind, Resource.Deployment.kind, "status"} <= set(world.kinds())
    assert calls.steps == STEPS
