"""What the resolver answers: a plan, its decisions, and what capturing it will cost."""

from collections.abc import Mapping
from dataclasses import dataclass

from graphpod_policy.words import Backend, CompileMode, Outcome, Phase, Policy, Stage


@dataclass(frozen=True, slots=True)
class Decision:
    """One step of the resolver that changed something: which rule, where, what it did, why, and what to do."""

    rule: str
    phase: Phase
    stage: Stage
    outcome: Outcome
    because: str
    hint: str

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
class Budget:
    """Seconds that capture, and the whole start, are expected to take at most."""

    capture_seconds: int
    start_seconds: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The resolved graph policy of a service.

    `refused` is the decision that ended the search under `onUnsupported: Fail`; the plan is then not to be run.
    `gates` names the rules that may send a single batch to the eager path.
    """

    phases: Mapping[Phase, PhasePlan]
    backend: Backend
    compile: CompileMode
    prefill_chunk: int
    decisions: tuple[Decision, ...]
    gates: tuple[str, ...]
    budget: Budget
    refused: Decision | None
    resolver_revision: str
