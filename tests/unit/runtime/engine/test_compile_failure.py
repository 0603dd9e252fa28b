"""What cannot be compiled runs uncompiled, or ends the start; both are said."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from graphpod_policy import CompileMode, ExitCode, Phase, Policy
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.wire.report import StartStage
from tests.contracts.decisions import DEGRADE, rules
from tests.unit.runtime.conftest import random_prompts

COMPILED = {"compile": CompileMode.Inductor}
FAILURES = "graphpod_graph_capture_failures_total"


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is kept from earlier starts, and the compiler raises what nobody foresaw."""

    def refuse(*arguments: object) -> None:
        raise KeyError("no working C++ compiler")

    monkeypatch.setattr("graphpod_runtime.compiled.cache.write_package", refuse)
    monkeypatch.setenv("GRAPHPOD_COMPILE_CACHE", str(tmp_path / "compiled"))


def effective(runner: Runner) -> list[Policy]:
    return [runner.report.phases[phase].effective for phase in Phase]


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_a_start_goes_on_uncompiled_and_says_so(
    started: Callable[..., Runner], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "graphpod"):
        runner = started(Policy.Piecewise, Policy.Full, **COMPILED, **DEGRADE)
    assert effective(runner) == [Policy.Piecewise, Policy.Full]
    assert rules(runner) == [("CompileFailed", phase.value, "Adjusted") for phase in Phase]
    told = runner.report.as_dict()["decisions"][-1]
    assert told["because"] == "model tiny: before cannot be compiled: KeyError: 'no working C++ compiler'"
    assert "graph.compile: None" in told["hint"]
    assert [record.getMessage() for record in caplog.records] == [told["because"]]
    assert [runner.counters.value(FAILURES, phase=phase, reason="CompileFailed") for phase in Phase] == [1, 1]
    assert StartStage.Compile in runner.report.stages
    prompts = random_prompts(4)
    assert generate(runner, prompts, 6) == generate(started(Policy.Disabled, Policy.Disabled), prompts, 6)
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_a_start_under_fail_ends_and_says_what_to_do(started: Callable[..., Runner]) -> None:
    with pytest.raises(StartFailure, match="before cannot be compiled: KeyError") as caught:
        started(**COMPILED)
    assert caught.value.code is ExitCode.CompileFailed
    assert "set spec.graph.compile: None, or spec.graph.onCaptureFailure: Degrade" in caught.value.message


@pytest.mark.usefixtures("as_written")
def test_a_half_that_fails_after_the_other_leaves_neither_compiled(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_FAULT", "compile:mlp")
    runner = started(**COMPILED, **DEGRADE)
    assert rules(runner) == [("CompileFailed", phase.value, "Adjusted") for phase in Phase]
    (functions,) = runner._engine.model.body.functions.values()
    assert (functions.before, functions.after) == (functions.plain_before, functions._after)
    prompts = random_prompts(4)
    assert generate(runner, prompts, 6) == generate(started(Policy.Disabled, Policy.Disabled), prompts, 6)


@pytest.mark.usefixtures("as_written")
def test_pieces_run_as_traced_where_one_of_them_fails_and_halves_stay_compiled(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_FAULT", "compile:piece")
    runner = started(Policy.Piecewise, Policy.Full, **COMPILED, **DEGRADE)
    assert effective(runner) == [Policy.Piecewise, Policy.Full]
    assert rules(runner) == [("CompileFailed", "prefill", "Adjusted")]
    assert runner.counters.value(FAILURES, reason="CompileFailed") == 1
    (functions,) = runner._engine.model.body.functions.values()
    assert functions.before is not functions.plain_before
    prompts = random_prompts(4)
    assert generate(runner, prompts, 6) == generate(started(Policy.Disabled, Policy.Disabled), prompts, 6)


@pytest.mark.usefixtures("as_written")
def test_a_piece_that_fails_ends_a_start_under_fail(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_FAULT", "compile:piece")
    with pytest.raises(StartFailure, match="model tiny: piece: injected fault; ") as caught:
        started(Policy.Piecewise, Policy.Full, **COMPILED)
    assert caught.value.code is ExitCode.CompileFailed
