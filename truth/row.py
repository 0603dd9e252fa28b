"""A row of the matrix: one policy over one subject, its engines, and the verdict on each of its cells."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from graphpod_policy import (
    Batch,
    Device,
    FallbackReason,
    Features,
    GraphRequest,
    OnCaptureFailure,
    Phase,
    Policy,
    SpeculativeMethod,
    refusing_gate,
    resolve,
)
from graphpod_policy.model.draft_head import head_not_built
from graphpod_runtime.engine.capture.debug import Mode
from graphpod_runtime.engine.runner import Runner
from truth.axes import EAGER, Variant, refused_by
from truth.cell import Cell, Outcome
from truth.drafting.oracle import knows
from truth.engines import Tree, features_of, start_engine, switches
from truth.launches import launched
from truth.models import Subject
from truth.ranks.divided import refused_over_ranks
from truth.ranks.spread import Spread
from truth.reference import Reference, alone
from truth.scenarios import FAULTY_SIZE, Scenario
from truth.schedule.counts import Counts
from truth.schedule.recorded_schedule import Difference, compare
from truth.schedule.shown import SHOWN, draft_replays, shown
from truth.schedule.texts import compare_texts

LOOK_SECONDS = 60
"""In which an engine looks at a folder of a few files."""


@dataclass(slots=True)
class Row:
    """One variant over one subject. An engine serves all scenarios without a fault, until something is raised."""

    device: Device
    spread: Spread
    poisoned: bool
    """Its engines run in the debug mode that spoils what a pass must not read."""
    subject: Subject
    variant: Variant
    scenarios: tuple[Scenario, ...]
    folder: Path
    reference: Reference
    runner: Runner | None = None
    others: dict[tuple[SpeculativeMethod | None, bool, Tree | None, bool], Runner] = field(default_factory=dict)
    """Engines with speculative decoding, a host tier or both, by the method, by whether they have a tier, by the form
    of drafts, and by whether they have files."""

    def cells(self) -> Iterator[Cell]:
        for scenario in self.scenarios:
            began = time.perf_counter()
            try:
                refused = self._not_drafted(scenario) or self._no_files(scenario)
                found = (Outcome.Refused, refused, Difference()) if refused else self._judged(scenario)
            except Exception as error:  # noqa: BLE001 (whatever an engine raises is a cell's failure, and is reported)
                self._leave()
                found = Outcome.Failed, words_of(error), Difference()
            outcome, because, difference = found
            yield Cell(
                self.subject.name,
                self.variant,
                scenario.name,
                outcome,
                because,
                tokens=difference.tokens,
                near_ties=difference.near_ties,
                scored=difference.scored,
                worst=difference.worst,
                met=scenario.met,
                allowed=self.reference.near_of(self.variant),
                seconds=time.perf_counter() - began,
            )
        self._leave()

    def _no_files(self, scenario: Scenario) -> str:
        """The rule that stands against files, if the scenario wants some."""
        return (scenario.files and refused_by(self._features(scenario), self.variant)) or ""

    def _not_drafted(self, scenario: Scenario) -> str:
        """Why nothing drafts, if the scenario wants that: the subject has no layers for it, or stages cannot verify."""
        refused = None
        if scenario.drafting is SpeculativeMethod.Mtp:
            refused = head_not_built(SpeculativeMethod.Mtp, self.subject.config)
        if scenario.drafts and refused is None and self.spread.pipeline > 1:
            refused = refused_over_ranks(self.subject, self._features(scenario))
        return refused or ""

    def _judged(self, scenario: Scenario) -> tuple[Outcome, str, Difference]:
        record = self.reference.of(scenario)
        runner = self._engine(scenario)
        before = {phase: Counts.now(runner.counters, phase) for phase in Phase}
        before_it, drafted = shown(runner), draft_replays(runner)
        if scenario.drafts and scenario.method is not SpeculativeMethod.DraftModel:
            knows(runner, (sequence.tokens for sequence in record.sequences.values()))
        given, stages = None if scenario.own_passes else record, self.spread.pipeline
        recorded = scenario.recorded(runner, scenario.wants, given, stages)
        launches = launched(lambda: scenario.run(recorded)) if self._launches(scenario) else scenario.run(recorded)
        after = {phase: Counts.now(runner.counters, phase) for phase in Phase}
        near = self.reference.near_of(self.variant)
        difference = (compare_texts if scenario.own_passes else compare)(record, recorded, near)
        if self.variant == EAGER and scenario.fault is None:
            difference += alone(self.reference, scenario)
        outcome, because = _verdict(difference, near, self._degraded(runner, scenario))
        if outcome is Outcome.Failed:
            return outcome, because, difference
        for happened, now, then in zip(SHOWN, shown(runner), before_it, strict=True):
            # A text of other near ties may hold nothing to look up.
            chance = happened == "drafts" and difference.near_ties and self.subject.rounded_to_fp8
            if getattr(scenario, happened) and now == then and not chance:
                return Outcome.Failed, f"no {SHOWN[happened]}, so nothing was shown", difference
        segments = sum((after[one] - before[one]).replays * runner.report.phases[one].segments for one in Phase)
        segments += draft_replays(runner) - drafted
        if launches not in (None, segments):
            return Outcome.Failed, f"{launches} graph launches, replays of {segments} segments counted", difference
        gates: set[str] = set()
        for phase in Phase:
            counts = after[phase] - before[phase]
            if wrong := counts.wrong(phase, recorded):
                return Outcome.Failed, wrong, difference
            if scenario.fault is None:
                expected = self._reasons(phase, scenario)
                if counts.reasons != expected:
                    text = " ".join(sorted(counts.reasons)) or "none"
                    wanted = " ".join(sorted(expected)) or "none"
                    return Outcome.Failed, f"{phase} ran eagerly for {text}, expected {wanted}", difference
                gates |= expected - {FallbackReason.Disabled}
        return (Outcome.Refused, ", ".join(gates), difference) if gates else (Outcome.Passed, "", difference)

    def _launches(self, scenario: Scenario) -> bool:
        """Whether launches are counted: on a GPU (the recorder launches nothing), where both phases are captured (the
        profiler is slow over eager code).
        """
        captured = all(self.variant.policy(phase) is not Policy.Disabled for phase in Phase)
        return self.device is Device.Cuda and captured and scenario.fault is None

    def _engine(self, scenario: Scenario) -> Runner:
        """That of the row, or for a fault one of its own, which starts by walking down."""
        if scenario.fault is not None:
            self._leave_ranks()
            phases = [phase for phase in Phase if self.variant.policy(phase) is not Policy.Disabled]
            of = "" if scenario.fault_of is None else f"@{scenario.fault_of}"
            faults = ",".join(f"{scenario.fault}:{phase}:{FAULTY_SIZE[phase]}{of}" for phase in phases)
            return self._start(OnCaptureFailure.Degrade, faults)
        if scenario.own_passes:
            kind = (scenario.drafting, scenario.host_tier, scenario.tree, scenario.files)
            if kind not in self.others:
                self._leave_ranks()
                self.others[kind] = self._after_another(scenario) if scenario.files else self._of_its_own(scenario)
            return self.others[kind]
        if self.runner is None:
            self._leave_ranks()
            # Eager's row, too, has an engine of its own: poison must not reach the records.
            self.runner = self._start(OnCaptureFailure.Fail)
        return self.runner

    def _of_its_own(self, scenario: Scenario, files: Path | None = None) -> Runner:
        drafts, host_tier, tree = scenario.drafting, scenario.host_tier, scenario.tree
        return self._start(OnCaptureFailure.Fail, drafts=drafts, host_tier=host_tier, tree=tree, files=files)

    def _after_another(self, scenario: Scenario) -> Runner:
        """An engine whose folder has what another one that has ended has left there."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        first = self._of_its_own(scenario, folder)
        scenario.run(scenario.recorded(first, scenario.wants))
        _close(first)
        second = self._of_its_own(scenario, folder)
        assert second.host_tier is not None
        assert second.host_tier.files is not None
        if not second.host_tier.files.looked.wait(LOOK_SECONDS):
            raise TimeoutError(f"the folder was not looked at within {LOOK_SECONDS} s")
        return second

    def _leave(self) -> None:
        """Its engines go, and threads of theirs."""
        for runner in self.others.values():
            _close(runner)
        self.runner = None
        self.others.clear()

    def _leave_ranks(self) -> None:
        """A process is a rank of one engine at a time."""
        if self.spread.ranks > 1:
            self._leave()

    def _start(
        self,
        on_failure: OnCaptureFailure,
        faults: str = "",
        *,
        drafts: SpeculativeMethod | None = None,
        host_tier: bool = False,
        tree: Tree | None = None,
        files: Path | None = None,
    ) -> Runner:
        # Tiny models compute in less time than they load.
        modes = [*([Mode.Poison] if self.poisoned else []), *([Mode.Reload] if host_tier else [])]
        with switches(faults, ",".join(modes)):
            return start_engine(
                self.subject,
                self.variant,
                self.device,
                self.folder,
                on_failure,
                drafts=drafts,
                host_tier=host_tier,
                spread=self.spread,
                tree=tree,
                files=files,
            )

    def _degraded(self, runner: Runner, scenario: Scenario) -> str | None:
        """What is wrong with the policies that run after this start; None when they are right."""
        for phase, report in runner.report.phases.items():
            policy = self.variant.policy(phase)
            rules = {one.rule for one in runner.report.decisions if one.phase is phase} & scenario.degraded_by
            if scenario.fault is None and report.effective is not policy:
                return f"{phase} runs {report.effective}"
            if scenario.fault is not None and bool(rules) != (policy is not Policy.Disabled):
                return f"{phase}: the injected fault led to {', '.join(rules) or 'no decision'}"
        return None

    def _reasons(self, phase: Phase, scenario: Scenario) -> frozenset[FallbackReason]:
        """Why passes of `phase` must run eagerly, and no others may."""
        policy = self.variant.policy(phase)
        if policy is Policy.Disabled:
            return frozenset({FallbackReason.Disabled})
        scores = phase is Phase.Prefill and scenario.reads_all_rows
        plan = resolve(self._features(scenario), GraphRequest(self.variant.prefill, self.variant.decode))
        gate = refusing_gate(plan.gates, Batch(phase, policy, rows=1, padded=1, input_logprobs=scores))
        return frozenset() if gate is None else frozenset({gate})

    def _features(self, scenario: Scenario) -> Features:
        """Of the engine that serves `scenario`."""
        asked, files = (scenario.drafting, scenario.host_tier), self.folder if scenario.files else None
        spread, tree = self.spread, scenario.tree
        return features_of(self.subject, self.device, *asked, spread=spread, tree=tree, files=files)


def _close(runner: Runner) -> None:
    """Others may have its part of a folder."""
    if runner.host_tier is not None:
        runner.host_tier.close()


def _verdict(difference: Difference, near: float, wrong: str | None) -> tuple[Outcome, str]:
    if wrong is not None:
        return Outcome.Failed, wrong
    if difference.wrong:
        text = f"{difference.wrong} of {difference.tokens} tokens are not eager's"
        return Outcome.Failed, f"{text}; {difference.first}" if difference.first else text
    if difference.worst and difference.worst >= near:
        return Outcome.Failed, f"a log-probability differs by {difference.worst:.2g} from eager's, {near:.2g} allowed"
    return Outcome.Passed, ""


def words_of(error: Exception) -> str:
    """As a cell says it."""
    return f"{type(error).__name__}: {error}"
