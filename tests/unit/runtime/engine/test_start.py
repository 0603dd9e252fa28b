"""The start: what it refuses, what it reports, and what a fact about the model leads to."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphpod_policy import ExitCode, OnUnsupported, Phase, Policy
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start.start_log import StartLog
from graphpod_runtime.wire.report import StartStage, State
from tests.contracts.decisions import rules
from tests.unit.runtime.conftest import engine_config


def test_disabled_phases_capture_nothing(started: Callable[..., Runner]) -> None:
    graph = started(Policy.Disabled, Policy.Disabled).report.as_dict()["graph"]
    for phase in Phase:
        assert graph[phase]["effective"] == "Disabled"
        assert graph[phase]["sizes"] == {"planned": 0, "captured": 0, "failed": 0}
        assert graph[phase]["selfCheck"] == "NotRun"


def test_the_log_says_how_much_was_loaded(started: Callable[..., Runner], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "graphpod.engine")
    gigabytes = started(Policy.Disabled, Policy.Disabled).report.weights_bytes / 1e9
    (line,) = (one for one in caplog.messages if one.startswith("weights of "))
    assert f": {gigabytes:.2f} GB in " in line


def test_gradients_stay_as_they_were(started: Callable[..., Runner]) -> None:
    started()
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (
            {"kv_cache_bytes": 10_000},
            ExitCode.KvCacheTooSmall,
            "one sequence of spec.engine.maxModelLen 128 needs 144 KiB; raise spec.engine.kvCacheMemory",
        ),
        ({"max_model_len": 4096}, ExitCode.ContextTooLong, "512 positions"),
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


@pytest.mark.parametrize(("prefill", "decode"), [(Policy.Disabled, Policy.Disabled), (Policy.Breakable, Policy.Full)])
def test_a_state_is_logged_before_the_stages_in_it(llama_folder: Path, prefill: Policy, decode: Policy) -> None:
    lines: list[str] = []
    runner = Runner(engine_config(llama_folder, prefill, decode), StartLog(lines.append).note)
    runner.start()
    named = (*StartStage, *State)
    order = [word for line in lines if (word := line.partition(":")[0].removesuffix(" …")) in named]
    assert order == [
        *("Load", "Buffers", "Capturing", "PrefillCapture", "DecodeMeasure", "KvSizing", "DecodeCapture"),
        *("SelfChecking", "SelfCheck", "Ready"),
    ]


def test_a_feature_that_is_not_built_is_refused(started: Callable[..., Runner]) -> None:
    with pytest.raises(StartFailure, match="Full is not built") as caught:
        started(prefill=Policy.Full)
    assert caught.value.code is ExitCode.FeatureNotBuilt


@pytest.fixture
def layer_without_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer of the model never calls attention."""
    from graphpod_runtime.models.layers.layer import DecoderLayer

    def without_attention(self: DecoderLayer, x: Any, cosines: Any, sines: Any, attend: Any) -> Any:
        return x if self.index == 1 else right(self, x, cosines, sines, attend)

    right = DecoderLayer.forward
    monkeypatch.setattr(DecoderLayer, "forward", without_attention)


@pytest.mark.usefixtures("layer_without_attention")
def test_a_model_with_other_layers_than_configured_runs_eagerly(started: Callable[..., Runner]) -> None:
    runner = started()
    assert {rule for rule, _, _ in rules(runner)} == {"UnknownLayers"}
    assert runner.report.as_dict()["graph"]["prefill"]["effective"] == "Disabled"


@pytest.mark.usefixtures("layer_without_attention")
def test_a_fact_against_a_policy_asked_by_name_ends_the_start_under_fail(llama_folder: Path) -> None:
    config = engine_config(llama_folder, Policy.Breakable, Policy.Disabled)
    graph = replace(config.graph, on_unsupported=OnUnsupported.Fail)
    runner = Runner(replace(config, graph=graph), lambda report: None)
    with pytest.raises(StartFailure, match=r"prefill: rule UnknownLayers excludes Breakable: .* 3 configured"):
        runner.start()
