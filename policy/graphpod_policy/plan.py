"""What the resolver answers: a plan, its decisions, and what capturing it will cost."""

from collections.abc import Mapping
from dataclasses import dataclass

from graphpod_policy.cost.cost import Budget, Cost
from graphpod_policy.enums import Backend, CompileMode, Duty, Outcome, Phase, Policy, Stage
from graphpod_policy.facts import Facts
from graphpod_policy.features import Features, GraphRequest


@dataclass(frozen=True, slots=True)
class Decision:
    """One step of the resolver that changed something: which rule, where, what it did, why, and what to do.

    `policy` is the candidate that was excluded, overridden or adjusted.
    """

    rule: str
    phase: Phase
    stage: Stage
    outcome: Outcome
    because: str
    hint: str
    policy: Policy | None = None

    def as_dict(self) -> dict[str, str]:
        """Plain strings, in the API's words."""
        return {
            "rule": self.rule,
            "phase": self.phase.value,
            "stage": self.stage.value,
            "outcome": self.outcome.value,
            "because": self.because,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """One phase: what was asked, what is planned, and the ascending sizes to capture, tokens (prefill) or sequences
    (decode); empty when Disabled.
    """

    requested: Policy
    planned: Policy
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The resolved graph policy of a service, with what it was resolved from.

    `duties` are what rules ask of the engine beyond capturing, `gates` names the rules that may send a single batch
    to the eager path, in the order they are asked, `costs` are estimates. `refused` is the decision that ended the
    search under `onUnsupported: Fail`; the plan is then not to be run.
    """

    features: Features
    request: GraphRequest
    facts: Facts
    phases: Mapping[Phase, PhasePlan]
    backend: Backend
    compile: CompileMode
    prefill_chunk: int
    duties: Mapping[Phase, tuple[Duty, ...]]
    gates: tuple[str, ...]
    costs: Mapping[Phase, Cost]
    budget: Budget
    decisions: tuple[Decision, ...]
    refused: Decision | None
    resolver_revision: str

    def rows(self, phase: Phase) -> tuple[int, ...]:
        """The sizes of `phase` as rows of a pass: with speculative decoding a sequence has several in decode."""
        width = self.features.verify_width if phase is Phase.Decode else 1
        return tuple(size * width for size in self.phases[phase].sizes)
