"""Only memory that ran out during a capture is recovered: the capture ends, that phase's graphs and pool are dropped,
the ladder is shortened, and it is tried once more. What else fails makes the policy weaker, or ends the start by its
code.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from graphpod_policy import Device, ExitCode, Phase, Policy
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.engine.forward.passes import Code, PrefillPass
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start.device import Host
from graphpod_runtime.graphs.segments.cpu import RecorderPool
from tests.contracts.decisions import DEGRADE, rules
from tests.unit.runtime.conftest import random_prompts

MORE_THAN_A_POOL_HAS = 1 << 30
"""Bytes."""


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("part", [1 / 3, 2 / 3, 1], ids=["a third", "two thirds", "the last"])
def test_out_of_memory_shortens_the_ladder_once(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, phase: Phase, part: float
) -> None:
    """Captured largest first: the n-th capture of a ladder of n is its smallest size."""
    ladder = (4, 8, 12, 16, 24, 32) if phase is Phase.Prefill else (1, 2, 3, 4, 6, 8)
    size = ladder[-round(part * len(ladder))]
    monkeypatch.setenv("GRAPHPOD_FAULT", f"capture-oom:{phase}:{size}")
    runner = started(**{f"{phase}_sizes": ladder}, **DEGRADE)
    graph = runner.report.as_dict()["graph"][phase]
    if size in ladder[:3]:  # the shorter ladder holds it too
        assert graph["effective"] != graph["planned"]
        assert [rule for rule, _, _ in rules(runner)][:2] == ["LadderMemory", "CaptureOutOfMemory"]
    else:
        assert graph["effective"] == graph["planned"]
        assert graph["sizes"] == {"planned": 6, "captured": 3, "failed": 3}
        assert rules(runner) == [("LadderMemory", phase, "Adjusted")]
    prompts = random_prompts(3)
    eager = started(Policy.Disabled, Policy.Disabled)
    assert generate(runner, prompts, 5) == generate(eager, prompts, 5)


@pytest.mark.parametrize("device", [Device.Cpu], indirect=True, ids=str)
def test_an_arena_without_room_shortens_the_ladder(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "pool", lambda self, addresses: RecorderPool(addresses, limit=60_000))
    runner = started(decode=Policy.Disabled, **DEGRADE)
    assert rules(runner) == [("LadderMemory", "prefill", "Adjusted")]
    assert 0 < runner.report.as_dict()["graph"]["prefill"]["poolBytes"] <= 60_000


@pytest.mark.gpu
@pytest.mark.parametrize("device", [Device.Cuda], indirect=True, ids=str)
@pytest.mark.parametrize("part", [1 / 3, 2 / 3, 1], ids=["a third", "two thirds", "the last"])
def test_an_allocator_at_its_limit_during_a_capture_shortens_the_ladder(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    """The process may take no more than it has when the n-th size is captured, once; the code needs more there."""
    ladder = (4, 8, 12, 16, 24, 32)
    at = [ladder[-round(part * len(ladder))]]
    right = PrefillPass.code

    def greedy_for_memory(self: PrefillPass, size: int) -> Code:
        code = right(self, size)

        def captured(attend: Attend) -> None:
            code(attend)
            if size in at and torch.cuda.is_current_stream_capturing():
                at.remove(size)
                total = torch.cuda.get_device_properties("cuda").total_memory
                torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
                try:
                    torch.empty(MORE_THAN_A_POOL_HAS, dtype=torch.uint8, device="cuda")
                finally:
                    torch.cuda.set_per_process_memory_fraction(1.0)

        return captured

    monkeypatch.setattr(PrefillPass, "code", greedy_for_memory)
    runner = started(prefill_sizes=ladder, **DEGRADE)
    assert not at
    assert rules(runner) == [("LadderMemory", "prefill", "Adjusted")]
    assert runner.report.as_dict()["graph"]["prefill"]["sizes"] == {"planned": 6, "captured": 3, "failed": 3}
    prompts = random_prompts(3)
    assert generate(runner, prompts, 5) == generate(started(Policy.Disabled, Policy.Disabled), prompts, 5)


def test_an_error_of_the_device_ends_the_start_whatever_may_degrade(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it nothing on the device can be trusted: a weaker policy needs a new process."""
    right = PrefillPass.code

    def broken(self: PrefillPass, size: int) -> Code:
        code = right(self, size)

        def captured(attend: Attend) -> None:
            code(attend)
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

        return captured

    monkeypatch.setattr(PrefillPass, "code", broken)
    with pytest.raises(StartFailure, match=r"prefill size 32.* CUDA error: an illegal memory access") as caught:
        started(**DEGRADE)
    assert caught.value.code is ExitCode.CaptureFailed


@pytest.mark.gpu
@pytest.mark.parametrize("device", [Device.Cuda], indirect=True, ids=str)
def test_a_host_read_in_a_captured_stream_ends_the_start(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA's own error, not the allocator's: the stream that was being captured is given up by the driver."""
    right = PrefillPass.code

    def reading(self: PrefillPass, size: int) -> Code:
        code = right(self, size)

        def captured(attend: Attend) -> None:
            code(attend)
            self.outputs.view(1)[0].sum().item()

        return captured

    monkeypatch.setattr(PrefillPass, "code", reading)
    with pytest.raises(StartFailure, match="prefill size 32, segment 3: ") as caught:
        started(**DEGRADE)
    assert caught.value.code is ExitCode.CaptureFailed


def test_a_failed_prefill_capture_degrades_to_eager_and_says_so(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault fires for each policy, so prefill steps from Breakable over Piecewise to Disabled."""
    monkeypatch.setenv("GRAPHPOD_FAULT", "capture:prefill:8")
    runner = started(**DEGRADE)
    prefill = runner.report.as_dict()["graph"]["prefill"]
    assert prefill["effective"] == "Disabled"
    assert prefill["planned"] == "Breakable"
    assert prefill["sizes"] == {"planned": 4, "captured": 0, "failed": 4}
    assert rules(runner) == [("CaptureFailed", "prefill", "Degraded")] * 2
    because = runner.report.as_dict()["decisions"][-1]["because"]
    assert "model tiny, prefill size 8" in because
    labels = {"phase": "prefill", "reason": "CaptureFailed"}
    assert runner.counters.value("graphpod_graph_capture_failures_total", **labels) == 2
    prompts = random_prompts(2)
    assert generate(runner, prompts, 4) == generate(started(Policy.Disabled, Policy.Disabled), prompts, 4)
    assert runner.counters.value("graphpod_graph_fallbacks_total", phase="prefill", reason="Disabled") > 0


def test_a_failed_decode_capture_steps_down_to_breakable(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault fires for each policy, so decode steps from Full over Breakable to Disabled."""
    monkeypatch.setenv("GRAPHPOD_FAULT", "capture:decode:2")
    runner = started(**DEGRADE)
    decode = runner.report.as_dict()["graph"]["decode"]
    assert decode["effective"] == "Disabled"
    assert decode["sizes"] == {"planned": 4, "captured": 0, "failed": 4}
    assert rules(runner) == [("CaptureFailed", "decode", "Degraded")] * 2
    assert runner.report.as_dict()["graph"]["prefill"]["effective"] == "Breakable"
    timed = {
        sample.labels["policy"]: sum(sample.buckets)
        for sample in runner.counters.snapshot()
        if sample.name == "graphpod_graph_capture_duration_seconds" and sample.labels["phase"] == "decode"
    }
    counted = partial(runner.counters.value, "graphpod_graph_captures_total", phase="decode")
    tried = {policy: counted(policy=policy) for policy in timed}
    assert timed == tried
    assert timed["Full"] == timed["Breakable"] > 1, "those that failed took time, too"


def test_a_failed_self_check_steps_down_and_never_serves_the_graph(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_FAULT", "selfcheck:decode:4")
    runner = started(**DEGRADE)
    decode = runner.report.as_dict()["graph"]["decode"]
    assert decode["effective"] == "Disabled"
    assert decode["selfCheck"] == "Failed"
    assert rules(runner) == [("SelfCheckFailed", "decode", "Degraded")] * 2
    assert runner.counters.value("graphpod_graph_selfchecks_total", phase="decode", result="failed") == 2


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("capture:decode:4", ExitCode.CaptureFailed),
        ("capture-oom:prefill:4", ExitCode.CaptureOutOfMemory),
        ("selfcheck:prefill:8", ExitCode.SelfCheckFailed),
    ],
)
def test_under_fail_the_start_ends_with_the_rules_own_code(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, fault: str, code: ExitCode
) -> None:
    monkeypatch.setenv("GRAPHPOD_FAULT", fault)
    with pytest.raises(StartFailure) as caught:
        started()
    assert caught.value.code is code
    assert "size" in caught.value.message
