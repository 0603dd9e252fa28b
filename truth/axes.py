"""The policies of the matrix, and the rule that stands against each one that cannot run."""

from dataclasses import dataclass

from graphpod_policy import (
    CompileMode,
    Features,
    GraphRequest,
    OnUnsupported,
    Outcome,
    Phase,
    Policy,
    not_built,
    resolve,
)


@dataclass(frozen=True, slots=True)
class Variant:
    """What runs each phase, and how layers are compiled."""

    prefill: Policy
    decode: Policy
    compile: CompileMode = CompileMode.Nothing

    def policy(self, phase: Phase) -> Policy:
        """That of `phase`."""
        return self.prefill if phase is Phase.Prefill else self.decode

    def __str__(self) -> str:
        compiled = "" if self.compile is CompileMode.Nothing else f", {self.compile.lower()}"
        return f"{self.prefill} / {self.decode}{compiled}"


EAGER = Variant(Policy.Disabled, Policy.Disabled)
"""What every other variant is compared with."""

PREFILLS = (Policy.Disabled, Policy.Breakable, Policy.Piecewise)
DECODES = (Policy.Disabled, Policy.Full, Policy.Breakable)
NEVER = (Variant(Policy.Full, Policy.Disabled), Variant(Policy.Disabled, Policy.Piecewise))
"""Policies of the other phase: the API can name them, and a rule refuses them."""
COMPILED = (
    (Policy.Disabled, Policy.Disabled),
    (Policy.Breakable, Policy.Full),
    (Policy.Breakable, Policy.Breakable),
    (Policy.Piecewise, Policy.Full),
)
"""What also runs with compiled layers: each way in which a compiled function is called."""


def variants() -> tuple[Variant, ...]:
    """All of the matrix: both phases by every policy of theirs, compiled ones, and what else the API can name."""
    plain = [Variant(prefill, decode) for prefill in PREFILLS for decode in DECODES]
    inductor = [Variant(*policies, CompileMode.Inductor) for policies in COMPILED]
    return (*plain, *inductor, Variant(*COMPILED[1], CompileMode.Autotune), *NEVER)


def refused_by(features: Features, variant: Variant) -> str | None:
    """The rule that stands against asking for `variant` by name, FeatureNotBuilt for what the feature table has no
    engine for yet; None when it can run.
    """
    request = GraphRequest(variant.prefill, variant.decode, compile=variant.compile, on_unsupported=OnUnsupported.Fail)
    plan = resolve(features, request)
    if plan.refused is not None:
        return plan.refused.rule
    if not (missing := not_built(features, request)):
        return None
    forced = [decision.rule for decision in plan.decisions if decision.outcome is Outcome.Forced]
    return ", ".join(forced) or f"FeatureNotBuilt ({missing[0].field})"
