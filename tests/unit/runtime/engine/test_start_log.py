"""A start is told line by line, each thing once."""

from graphpod_policy import Backend, Decision, Outcome, Phase, Policy, Stage
from graphpod_runtime.engine.start.start_log import StartLog
from graphpod_runtime.wire import report as reports
from graphpod_runtime.wire.report import CaptureCost, PhaseReport, Report, State


def a_report() -> Report:
    part = PhaseReport(Policy.Auto, Policy.Full, Policy.Breakable, planned_sizes=4, captured=4)
    return Report(Backend.Recorder, {Phase.Decode: part}, kv_pages=9)


def test_stages_states_and_decisions_are_told_once():
    lines: list[str] = []
    journal, report = StartLog(lines.append), a_report()
    journal.note(report)
    report.stages[reports.StartStage.Load] = 1.25
    report.state = State.Capturing
    journal.note(report)
    journal.note(report)
    spec = Decision("NoCuda", Phase.Decode, Stage.Spec, Outcome.Adjusted, "on a CPU", "nothing")
    here = Decision("CaptureFailed", Phase.Decode, Stage.Engine, Outcome.Degraded, "size 2: boom", "read the log")
    report.decisions = (spec, here)
    report.state = State.Ready
    journal.note(report)
    assert lines == [
        "Load: 1.2 s",
        "Capturing …",
        "CaptureFailed (decode, Degraded): size 2: boom; read the log",
        "Ready: decode Breakable 4/4, backend Recorder, 9 KV pages",
    ]


def test_the_capture_clock_is_told_as_a_sum_of_its_parts():
    lines: list[str] = []
    part = PhaseReport(Policy.Auto, Policy.Breakable, Policy.Breakable, planned_sizes=2, captured=2)
    part.prepare_seconds, part.warm_seconds = 0.5, 0.25
    part.costs = (CaptureCost(8, 0.75, 100, 0), CaptureCost(4, 0.5, 0, 0))
    report = Report(Backend.Recorder, {Phase.Prefill: part})
    report.stages = {
        reports.StartStage.Load: 9.0,
        reports.StartStage.Buffers: 1.0,
        reports.StartStage.PrefillCapture: 2.25,
    }
    StartLog(lines.append).note(report)
    assert lines[-1] == (
        "capture clock 3.25 s = buffers 1.00 + compile 0.00 + trace 0.50 + warm-up 0.25 + graphs 1.25 + rest 0.25"
    )


def test_a_failed_start_ends_with_its_cause():
    lines: list[str] = []
    journal, report = StartLog(lines.append), a_report()
    report.state, report.failure = State.Failed, ("CaptureFailed", "decode size 2: boom")
    journal.note(report)
    assert lines == ["CaptureFailed: decode size 2: boom"]


def test_a_long_ladder_is_told_by_quarters():
    lines: list[str] = []
    part = PhaseReport(Policy.Auto, Policy.Breakable, Policy.Breakable, planned_sizes=22)
    journal, report = StartLog(lines.append), Report(Backend.Recorder, {Phase.Prefill: part}, state=State.Capturing)
    for part.captured in range(23):
        journal.note(report)
    assert lines == ["Capturing …", *(f"prefill: {n} of 22 sizes captured" for n in (6, 11, 17))]


def test_checks_are_told_by_quarters_of_what_was_captured():
    lines: list[str] = []
    part = PhaseReport(Policy.Auto, Policy.Full, Policy.Full, planned_sizes=8, captured=8)
    journal, report = StartLog(lines.append), Report(Backend.Recorder, {Phase.Decode: part}, state=State.SelfChecking)
    for part.checked in range(9):
        journal.note(report)
    assert lines == ["SelfChecking …", *(f"decode: {n} of 8 sizes checked" for n in (2, 4, 6))]
