"""A start in lines: what a log or a terminal shows while an engine gets Ready."""

from collections.abc import Callable

import graphpod_policy
from graphpod_policy import Phase
from graphpod_runtime.wire.report import Report, StartStage, State


class StartLog:
    """Logs what is new in each report: a state, a stage that ended, a decision taken here, the end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._state = State.Loading
        self._stages = 0
        self._decisions = 0
        self._layers: tuple[int, ...] = ()
        self._quarters: dict[tuple[Phase, str], int] = {}
        """Of each ladder, done when progress was last logged."""

    def note(self, report: Report) -> None:
        """Says what `report` has and the one before had not."""
        stages, self._stages = list(report.stages.items())[self._stages :], len(report.stages)
        for stage, seconds in stages:
            self._say(f"{stage}: {seconds:.1f} s")
            if stage is StartStage.PrefillCapture:
                self._say(_clock(report.capture_clock()))
        if report.pipeline_layers != self._layers:
            self._layers = report.pipeline_layers
            self._say(f"pipeline: stages of {' + '.join(map(str, self._layers))} layers")
        decisions, self._decisions = report.decisions[self._decisions :], len(report.decisions)
        for decision in decisions:
            if decision.stage is graphpod_policy.Stage.Engine:
                self._say(
                    f"{decision.rule} ({decision.phase}, {decision.outcome}): {decision.because}; {decision.hint}"
                )
        if report.state is self._state:
            self._progress(report)
            return
        self._state = report.state
        if report.failure is not None:
            self._say(f"{report.failure[0]}: {report.failure[1]}")
        elif report.terminal:
            phases = ", ".join(
                f"{phase} {part.effective} {part.captured}/{part.planned_sizes}"
                for phase, part in report.phases.items()
            )
            self._say(f"{report.state}: {phases}, backend {report.backend}, {report.kv_pages} KV pages")
        else:
            self._say(f"{report.state} …")

    def _progress(self, report: Report) -> None:
        """A line for each quarter of a ladder: a long one takes a minute on a CPU."""
        for phase, part in report.phases.items():
            for doing, done, of in (
                ("captured", part.captured, part.planned_sizes),
                ("checked", part.checked, part.captured),
            ):
                before, now = self._quarters.get((phase, doing), 0), 4 * done // max(1, of)
                self._quarters[phase, doing] = now
                if before < now < 4:
                    self._say(f"{phase}: {done} of {of} sizes {doing}")


def _clock(parts: dict[str, float]) -> str:
    summands = " + ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())
    return f"capture clock {sum(parts.values()):.2f} s = {summands}"
