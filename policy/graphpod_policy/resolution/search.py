"""One resolution in progress: candidates are tried in order, rules speak, decisions are kept."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from graphpod_policy.enums import (
    CompileMode,
    Duty,
    OnUnsupported,
    Outcome,
    Phase,
    Policy,
    Severity,
    Stage,
)
from graphpod_policy.facts import Facts
from graphpod_policy.features import Features
from graphpod_policy.plan import Decision
from graphpod_policy.resolution.sizing import Change
from graphpod_policy.rules import BY_NAME, Case, Rule, exclusions, speaking

COMPILE_ORDER = (CompileMode.Nothing, CompileMode.Inductor, CompileMode.Autotune)
"""Weakest first."""


@dataclass(slots=True)
class Search:
    """What is known, and what was decided so far.

    A Decision is kept iff a rule excluded a candidate that the search reached before the chosen one, adjusted a
    value, or was overridden.
    """

    features: Features
    facts: Facts
    on_unsupported: OnUnsupported
    stage: Stage
    decisions: list[Decision] = field(default_factory=list)
    refused: Decision | None = None

    def case(self, phase: Phase, policy: Policy) -> Case:
        """One candidate, with all that is known."""
        return Case(self.features, self.facts, phase, policy)

    def choose(self, phase: Phase, asked: Policy, candidates: Iterable[Policy], heard: Policy | None = None) -> Policy:
        """The first candidate that no rule excludes. `asked` is the user's word; of `heard`, which stood before more
        was known, only rows of this stage are asked.
        """
        for candidate in candidates:
            case = self.case(phase, candidate)
            found = exclusions(case)
            excluding = [rule for rule in found if candidate is not heard or rule.stage is self.stage]
            unsupported = [rule for rule in excluding if rule.severity is Severity.Unsupported]
            explicit = candidate is asked
            if explicit and self.on_unsupported is OnUnsupported.Fail and unsupported:
                for rule in unsupported:
                    self._refuse(rule, case)
                return Policy.Disabled
            if explicit and not unsupported:
                for rule in excluding:
                    self.decide(rule, case, Outcome.Forced)
                return candidate
            if not excluding:
                return candidate
            for rule in excluding:
                self.decide(rule, case, Outcome.Degraded if candidate is heard else Outcome.Excluded)
        return Policy.Disabled

    def empty(self, case: Case, asked: Policy) -> None:
        """No size is left for the chosen policy."""
        if asked is case.policy and self.on_unsupported is OnUnsupported.Fail:
            self._refuse(BY_NAME["LadderEmpty"], case)
        else:
            self.decide(BY_NAME["LadderEmpty"], case, Outcome.Excluded)

    def resize(self, case: Case, changes: Iterable[Change]) -> None:
        """What was done to a ladder, by which row."""
        for rule, because in changes:
            self.decide(rule, case, Outcome.Adjusted, because)

    def compile(self, asked: CompileMode, best: CompileMode, cases: Iterable[Case]) -> CompileMode:
        """What was asked, or less where a rule of this stage and of one of the cases allows less: what an earlier stage
        decided stands. Auto is `best`, and nothing is lost when a rule allows less.
        """
        mode = best if asked is CompileMode.Auto else asked
        for case in cases:
            for rule in speaking(case, Severity.Adjust):
                if rule.stage is not self.stage or rule.compile is None:
                    continue
                if COMPILE_ORDER.index(rule.compile) < COMPILE_ORDER.index(mode):
                    mode = rule.compile
                    if asked is not CompileMode.Auto:
                        self.decide(rule, case, Outcome.Adjusted)
        return mode

    def duties(self, case: Case, known: tuple[Duty, ...]) -> tuple[Duty, ...]:
        """What the rules ask of the engine; one that is not `known` yet is decided now."""
        duties: list[Duty] = []
        for rule in speaking(case, Severity.Adjust):
            if rule.duty is not None and rule.duty not in duties:
                duties.append(rule.duty)
                if rule.duty not in known:
                    self.decide(rule, case, Outcome.Adjusted)
        return tuple(duties)

    def decide(self, rule: Rule, case: Case, outcome: Outcome, because: str | None = None) -> Decision:
        """Keeps a decision."""
        decision = Decision(
            rule=rule.id,
            phase=case.phase,
            stage=self.stage,
            outcome=outcome,
            because=because or rule.why(case),
            hint=rule.hint,
            policy=case.policy,
        )
        self.decisions.append(decision)
        return decision

    def _refuse(self, rule: Rule, case: Case) -> None:
        decision = self.decide(rule, case, Outcome.Refused)
        self.refused = self.refused or decision
