"""The start: its order, its report, and what a failed capture leads to."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphpod_policy import ExitCode, OnCaptureFailure, OnUnsupported, Phase, Policy
from graphpod_runtime.engine.device import Host
from graphpod_runtime.engine.failure import StartFailure
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs.arena import Arena
from graphpod_runtime.graphs.errors import CaptureFailed
from graphpod_runtime.graphs.segment import RecorderPool
from tests.unit.runtime.conftest import engine_config, random_prompts

DEGRADE = {"on_capture_failure": OnCaptureFailure.Degrade}


def rules(runner: Runner) -> list[tuple[str, str, str]]:
    """(rule, phase, outcome) of every decision taken by the engine itself."""
    return [
        (entry["rule"], entry["phase"], entry["outcome"])
        for entry in runner.report.as_dict()["decisions"]
        if entry["stage"] == "Engine"
    ]


def test_a_start_reports_every_stage_in_order_and_every_captured_size(started: Callable[..., Runner]) -> None:
    runner = started()
    reports: list[dict[str, Any]] = runner.reports  # type: ignore[attr-defined]
    states = list(dict.fromkeys(report["state"] for report in reports))
    assert states == ["Loading", "Capturing", "SelfChecking", "Ready"]
    last = reports[-1]
    assert [stage["name"] for stage in last["stages"]] == [
        "Load",
        "PrefillCapture",
        "DecodeMeasure",
        "KvSizing",
        "DecodeCapture",
        "SelfCheck",
    ]
    captured = [report["graph"]["prefill"]["sizes"]["captured"] for report in reports]
    assert list(dict.fromkeys(captured)) == [0, 1, 2, 3, 4]
    assert last["terminal"]
    assert last["failure"] is None
    prefill, decode = last["graph"]["prefill"], last["graph"]["decode"]
    assert prefill["effective"] == "Breakable"
    assert decode["effective"] == "Full"
    assert prefill["segments"] == 3 + 1
    assert decode["segments"] == 1
    assert decode["sizes"] == {"planned": 4, "captured": 4, "failed": 0}
    assert prefill["poolBytes"] > 0
    assert last["kv"]["tokens"] == last["kv"]["pages"] * 4 > 0


def test_disabled_phases_capture_nothing(started: Callable[..., Runner]) -> None:
    graph = started(Policy.Disabled, Policy.Disabled).report.as_dict()["graph"]
    for phase in Phase:
        assert graph[phase]["effective"] == "Disabled"
        assert graph[phase]["sizes"] == {"planned": 0, "captured": 0, "failed": 0}
        assert graph[phase]["selfCheck"] == "NotRun"


def test_a_failed_prefill_capture_degrades_to_eager_and_says_so(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_FAULT", "capture:prefill:8")
    runner = started(**DEGRADE)
    prefill = runner.report.as_dict()["graph"]["prefill"]
    assert prefill["effective"] == "Disabled"
    assert prefill["planned"] == "Breakable"
    assert prefill["sizes"] == {"planned": 4, "captured": 0, "failed": 4}
    assert rules(runner) == [("CaptureFailed", "prefill", "Degraded"), ("NotBuilt", "prefill", "Excluded")]
    because = runner.report.as_dict()["decisions"][-2]["because"]
    assert "model tiny, prefill size 8" in because
    labels = {"phase": "prefill", "reason": "CaptureFailed"}
    assert runner.counters.value("graphpod_graph_capture_failures_total", **labels) == 1
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


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("nth", ["a third", "two thirds", "the last"])
def test_out_of_memory_shortens_the_ladder_once(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, phase: Phase, nth: str
) -> None:
    """Captured largest first: the n-th capture of a ladder of n is its smallest size."""
    ladder = (4, 8, 12, 16, 24, 32) if phase is Phase.Prefill else (1, 2, 3, 4, 6, 8)
    at = {"a third": 2, "two thirds": 4, "the last": 6}[nth]
    size = ladder[-at]
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


def test_a_pool_without_room_runs_out_of_memory_by_itself(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "pool", lambda self, addresses: RecorderPool(addresses, limit=60_000))
    runner = started(decode=Policy.Disabled, **DEGRADE)
    assert rules(runner) == [("LadderMemory", "prefill", "Adjusted")]
    assert 0 < runner.report.as_dict()["graph"]["prefill"]["poolBytes"] <= 60_000


def test_no_capture_after_ready_and_the_attempt_is_counted(started: Callable[..., Runner]) -> None:
    runner = started()
    engine = runner._engine
    with pytest.raises(CaptureFailed, match="after Ready"):
        engine.capturer.capture(engine.passes[Phase.Decode], Policy.Full, (1,), lambda done: None)
    assert runner.counters.value("graphpod_graph_recaptures_total", phase="decode") == 1
    generate(runner, random_prompts(1), 2)
    assert runner.counters.value("graphpod_graph_recaptures_total") == 1


def test_dropped_graphs_leave_no_memory(started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured decode ladder, and a ladder whose capture failed, give their pools back without a collector."""
    made: list[weakref.ref[Arena]] = []
    right = Arena.__init__

    def counted(self: Arena, limit: int) -> None:
        made.append(weakref.ref(self))
        right(self, limit)

    monkeypatch.setattr(Arena, "__init__", counted)
    monkeypatch.setenv("GRAPHPOD_FAULT", "capture:prefill:8")
    gc.disable()
    try:
        runner = started(**DEGRADE)
        alive = [arena() for arena in made if arena() is not None]
    finally:
        gc.enable()
    assert len(made) == 3  # prefill, decode measured, decode
    assert alive == [runner._engine.graphs[Phase.Decode].pool.arena]  # type: ignore[attr-defined]


def test_gradients_stay_as_they_were(started: Callable[..., Runner]) -> None:
    started()
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_the_cache_is_sized_from_what_is_free(started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphpod_runtime.graphs.memory.peak_of", lambda run: 1_000_000)
    monkeypatch.setattr("graphpod_runtime.graphs.memory.available_bytes", lambda: 2_000_000)
    runner = started(Policy.Disabled, Policy.Disabled, kv_cache_bytes=None)
    one_page = 2 * 3 * 4 * 3 * 16 * 4  # keys and values, layers, tokens, heads, width, bytes
    assert runner.report.kv_pages == (1_800_000 - 1_000_000) // one_page
    monkeypatch.setattr("graphpod_runtime.graphs.memory.available_bytes", lambda: 10**12)
    assert started(Policy.Disabled, Policy.Disabled, kv_cache_bytes=None).report.kv_pages == 8 * 128 // 4


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"kv_cache_bytes": 10_000}, ExitCode.ConfigInvalid, "one sequence of maxModelLen 128 needs 32"),
        ({"max_model_len": 4096}, ExitCode.ConfigInvalid, "512 positions"),
        ({"folder": Path("/nowhere")}, ExitCode.ModelInvalid, "no such folder"),
    ],
)
def test_a_start_that_cannot_work_says_what_to_do(
    started: Callable[..., Runner], changes: dict[str, Any], code: ExitCode, words: str
) -> None:
    with pytest.raises(StartFailure, match=words) as caught:
        started(**changes)
    assert caught.value.code is code


def test_a_failed_start_reports_failed_before_it_raises(llama_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHPOD_FAULT", "capture:prefill:32")
    reports: list[dict[str, Any]] = []
    runner = Runner(
        engine_config(llama_folder, Policy.Breakable, Policy.Full), lambda report: reports.append(report.as_dict())
    )
    with pytest.raises(StartFailure):
        runner.start()
    assert reports[-1]["state"] == "Failed"
    assert reports[-1]["terminal"]
    assert reports[-1]["failure"]["reason"] == "CaptureFailed"


def test_a_feature_that_is_not_built_is_refused(started: Callable[..., Runner]) -> None:
    with pytest.raises(StartFailure, match="Piecewise is not built") as caught:
        started(prefill=Policy.Piecewise)
    assert caught.value.code is ExitCode.FeatureNotBuilt


@pytest.fixture
def layer_without_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer of the model never calls attention."""
    from graphpod_runtime.models.llama import LlamaLayer

    def without_attention(self: LlamaLayer, x: Any, cosines: Any, sines: Any, attend: Any) -> Any:
        return x if self.index == 1 else right(self, x, cosines, sines, attend)

    right = LlamaLayer.forward
    monkeypatch.setattr(LlamaLayer, "forward", without_attention)


@pytest.mark.usefixtures("layer_without_attention")
def test_a_model_with_other_layers_than_configured_runs_eagerly(started: Callable[..., Runner]) -> None:
    runner = started()
    assert {rule for rule, _, _ in rules(runner)} == {"UnknownLayers", "NotBuilt"}
    assert runner.report.as_dict()["graph"]["prefill"]["effective"] == "Disabled"


@pytest.mark.usefixtures("layer_without_attention")
def test_a_fact_against_a_policy_asked_by_name_ends_the_start_under_fail(llama_folder: Path) -> None:
    config = engine_config(llama_folder, Policy.Breakable, Policy.Disabled)
    graph = replace(config.graph, on_unsupported=OnUnsupported.Fail)
    runner = Runner(replace(config, graph=graph), lambda report: None)
    with pytest.raises(StartFailure, match=r"prefill: rule UnknownLayers stands against Breakable: .* 3 configured"):
        runner.start()
