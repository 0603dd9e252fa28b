"""What a rule is, what it judges, and what a gate judges."""

from collections.abc import Callable
from dataclasses import dataclass

from graphpod_policy.enums import Backend, CompileMode, Duty, Phase, Policy, Severity, Stage
from graphpod_policy.facts import Facts
from graphpod_policy.features import Features

BOTH = (Phase.Prefill, Phase.Decode)
PREFILL = (Phase.Prefill,)
DECODE = (Phase.Decode,)
GRAPHS = (Policy.Piecewise, Policy.Breakable, Policy.Full)
EVERY = (*GRAPHS, Policy.Disabled)


@dataclass(frozen=True, slots=True)
class Case:
    """One candidate policy of one phase, with all that is known."""

    features: Features
    facts: Facts
    phase: Phase
    policy: Policy


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward pass as the gates see it. `rows` are real tokens (prefill) or sequences (decode), `padded` those of
    the smallest graph that holds them.
    """

    phase: Phase
    policy: Policy
    rows: int
    padded: int
    requests: int = 1
    slots: int | None = None
    """Requests a Full prefill graph has room for."""
    verify: bool = False
    """Draft tokens are verified."""
    wants_auxiliary_states: bool = False
    has_auxiliary_states: bool = False
    """The graph leaves auxiliary hidden states."""
    input_logprobs: bool = False
    """Log-probabilities of prompt tokens are asked, from a position before the last."""
    input_embeds: bool = False
    """The batch brings embeddings instead of token ids."""
    foreign_adapter: bool = False
    """A request's adapter is not in the static buffers."""
    ranks_agree: bool = True
    """Every data-parallel rank can run its part on a graph."""
    recompiled: bool = False
    """A compiled piece was traced again in this pass."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table; rows with the same id are one rule that speaks with several severities.

    `when` judges a candidate; None: the row is applied by name where its fact arises (ladders, failures).
    `stage` says when enough is known to judge. An Adjust row changes what `duty`, `compile`, `multiple` or
    `backend` say: what the engine must do, the most compiling that is allowed, the number every size is a multiple of,
    what captures. A Gate row is part
    of a plan when `when` holds and then asks `refuses` of each batch. `detail` puts this case's values behind
    `because`. `feature` names the row of FEATURES it is about.
    """

    id: str
    phases: tuple[Phase, ...]
    policies: tuple[Policy, ...]
    severity: Severity
    when: Callable[[Case], bool] | None
    because: str
    hint: str
    source: str
    stage: Stage = Stage.Spec
    feature: str = ""
    detail: Callable[[Case], str] | None = None
    duty: Duty | None = None
    compile: CompileMode | None = None
    multiple: Callable[[Case], int] | None = None
    backend: Backend | None = None
    refuses: Callable[[Batch], bool] | None = None

    def why(self, case: Case) -> str:
        """`because`, with the values of this case."""
        return self.because if self.detail is None else f"{self.because}: {self.detail(case)}"


def always(_: Case) -> bool:
    """The condition of a row that holds for every service."""
    return True
