"""A compiled function enters a recording as one opaque call, and the compiled code runs at capture and at every replay.
Op by op, as the recorder's dispatch mode sees other code, it would run uncompiled.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import Device
from graphpod_runtime.base.opaque_call import OpaqueCall
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.graphs.segments.addresses import Addresses
from graphpod_runtime.graphs.segments.segment import Calls, capture
from tests.contracts.pools import capturing

CPU_ONLY = pytest.mark.parametrize("device", [Device.Cpu], indirect=True, ids=str)


class Compiled:
    """x·2 + 1 by torch.compile; `runs` counts calls of what was compiled, in Python."""

    def __init__(self) -> None:
        self.runs = 0
        torch._dynamo.reset()
        self.call: Callable[[Tensor], Tensor] = torch.compile(lambda x: x * 2 + 1, backend=self._backend)

    def _backend(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        def run(*arguments: Tensor) -> Any:
            self.runs += 1
            return graph(*arguments)

        return run


class Desk:
    """x and y of four numbers, registered."""

    def __init__(self, place: Place) -> None:
        self.x, self.y = (torch.zeros(4, device=place.device) for _ in range(2))
        addresses = Addresses()
        addresses.register("x", self.x)
        addresses.register("y", self.y)
        self.pool = place.pool(addresses)

    @torch.no_grad()
    def captured(self, code: Callable[[Tensor], Tensor]) -> Calls:
        def whole() -> None:
            self.y.copy_(code(self.x + 0))

        with capturing(self.pool):
            self.pool.warm(whole)
            return capture(self.pool.segment(), whole)

    @torch.no_grad()
    def replay(self, calls: Calls, value: float) -> list[float]:
        self.x.fill_(value)
        self.y.fill_(torch.nan)
        for call in calls:
            call()
        return self.y.tolist()


def test_compiled_code_runs_at_capture_and_its_result_follows_the_input_of_each_replay(place: Place) -> None:
    compiled, desk = Compiled(), Desk(place)
    calls = desk.captured(OpaqueCall(compiled.call))
    assert compiled.runs >= 1
    assert [desk.replay(calls, value) for value in (1, 5, -2)] == [[3] * 4, [11] * 4, [-3] * 4]


@CPU_ONLY
def test_the_recorder_notes_it_as_one_call_and_runs_the_compiled_code_at_every_replay(place: Place) -> None:
    compiled, desk = Compiled(), Desk(place)
    with torch.no_grad():
        compiled.call(desk.x)
    calls = desk.captured(OpaqueCall(compiled.call))
    assert len(calls) == 3  # the sum before it, the call, the copy after it
    before = compiled.runs
    for value in (1, 5, -2):
        assert desk.replay(calls, value) == [value * 2 + 1] * 4
    assert compiled.runs == before + 3


@CPU_ONLY
def test_what_a_call_returns_is_invalid_until_it_is_replayed(place: Place) -> None:
    desk = Desk(place)
    kept: list[Tensor] = []

    def keeping(x: Tensor) -> Tensor:
        kept.append(OpaqueCall(lambda value: value * 2)(x))
        return kept[0]

    with torch.no_grad():
        calls = capture(desk.pool.segment(), lambda: desk.y.copy_(keeping(desk.x + 0)))
    assert kept[0].isnan().all()
    assert desk.replay(calls, 4) == [8] * 4
