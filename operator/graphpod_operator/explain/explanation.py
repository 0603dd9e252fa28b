"""What a service will run and why, before anything is paid for: the resolver's answer as values. Pure.

The same `resolve` and `can_start` that the operator plans with and the engine starts by; with facts of a node or a
model, also the engine's `refine`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from graphpod_operator.api.spec import Spec
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.explain.limits import Limits
from graphpod_operator.explain.manifest import Manifest
from graphpod_operator.explain.notes import Unchecked, assumptions, notes_of, unchecked
from graphpod_operator.explain.rank_memory import RankMemory
from graphpod_operator.explain.sleep_bytes import SleepBytes
from graphpod_operator.install.allow_lists import AllowLists
from graphpod_operator.install.installation import Installation
from graphpod_operator.intent import resolver_input
from graphpod_operator.intent.engine_config import EngineFile, engine_config
from graphpod_operator.intent.over_limits import over_limits
from graphpod_operator.intent.resolver_input import container_bytes
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.pod.container import WAITING_CEILING, start_ceiling
from graphpod_policy import (
    CompileMode,
    Decision,
    ExitCode,
    ModelFacts,
    NodeFacts,
    Obstacle,
    Outcome,
    Phase,
    PhasePlan,
    Plan,
    Policy,
    attention_there,
    can_start,
    refine,
    resolve,
    settled,
    start_facts,
)
from graphpod_policy.attention import Choice
from graphpod_policy.engine_features import BUILT_POLICIES
from graphpod_policy.node import processes_bytes
from graphpod_policy.rules import GATES, is_about_built
from graphpod_policy.rules.gates import PADDING_GATE, Gap, gaps
from graphpod_policy.units import duration

ALL = AllowLists()
"""No list restricts anything."""
SLOW_SECONDS = 1800
"""An estimate of a start above this is a warning."""


class Verdict(StrEnum):
    """Whether a pod can start, and if so, how the graphs' plan compares with what was asked."""

    AsAsked = "AsAsked"
    Degraded = "Degraded"
    """A policy was excluded, or sizes or compiling were not kept."""
    CannotStart = "CannotStart"
    """Something stands against a start: the operator refuses the spec, or the engine ends."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command line."""
        return {Verdict.AsAsked: 0, Verdict.Degraded: 3}.get(self, 4)


@dataclass(frozen=True, slots=True)
class Explanation:
    """All there is to say of one service. `there` is the plan as the engine would refine it with the given facts."""

    manifest: Manifest
    plan: Plan
    there: Plan | None
    obstacles: tuple[Obstacle, ...]
    """All that stands against a start; the first is what the operator or the engine would end by."""
    accepted: bool
    """Whether the operator plans it: it accepts a service that has no pods, or whose engine cannot start."""
    dtype: str | None
    """Of weights and activations, where the engine's place is known or does not matter."""
    attention: Choice | None
    """The kernels that would compute attention, where model and node are known."""
    limits: Limits
    memory: RankMemory | None
    """Of several ranks, where the model is known."""
    sleep: SleepBytes | None
    """Of a service that can sleep."""
    config_hash: str
    notes: tuple[str, ...]
    unchecked: tuple[Unchecked, ...]

    @property
    def final(self) -> Plan:
        """The plan with all that is known."""
        return self.there or self.plan

    @property
    def refused(self) -> tuple[Phase, ...]:
        """The phases whose own policy is refused: nothing is planned for them."""
        by_rule = {one.phase for one in self.final.decisions if one.outcome is Outcome.Refused}
        return tuple(
            phase
            for phase, row in self.plan.phases.items()
            if phase in by_rule or row.planned not in BUILT_POLICIES[phase]
        )

    @property
    def start_limit(self) -> int:
        """Seconds after which the kubelet ends a start."""
        return start_ceiling(self.manifest.spec, self.plan)

    @property
    def slow(self) -> str | None:
        """That a start takes long, or longer than the kubelet waits, with the next step; None: it does not."""
        budget, limit = self.final.budget, self.start_limit
        seconds, graphs = budget.start_seconds, 2 * budget.capture_seconds + budget.check_seconds
        if seconds <= min(SLOW_SECONDS, limit):
            return None
        most, steps = f"Ready may take up to {duration(seconds)}", []
        if seconds > limit:
            most = f"{most}, and the kubelet ends a start after {duration(limit)}"
            if seconds <= WAITING_CEILING:
                steps.append(f"set spec.engine.startTimeout to {math.ceil(seconds / 60)}m")
        captured = [phase for phase in Phase if self.final.phases[phase].planned is not Policy.Disabled]
        if 2 * graphs < seconds or not captured:
            most = f"{most}; most of that is the load of the weights"
        else:
            phase = captured[0]
            fewer = f"list fewer and smaller sizes in spec.graph.sizes.{phase}"
            steps.append(f"{fewer}, or set spec.graph.{phase} to Disabled")
            if not resolver_input.wants_gpu(self.manifest.spec):
                steps.append("request a GPU in spec.resources.limits[nvidia.com/gpu]: this service runs on a CPU")
        return f"{most}: {', or '.join(steps)}" if steps else most

    @property
    def verdict(self) -> Verdict:
        """Whether a pod can start as asked."""
        return Verdict.CannotStart if self.obstacles else self.graphs

    @property
    def graphs(self) -> Verdict:
        """How the plan of graphs compares with what was asked, whatever else stands against a start."""
        loses = self.final.refused is not None or any(map(_loses, self.final.decisions)) or self._shortened()
        return Verdict.Degraded if loses else Verdict.AsAsked

    def _shortened(self) -> bool:
        """Whether sizes or a way of compiling that were asked for are not in the plan."""
        plan, request = self.final, self.final.request
        sizes = any(
            (asked := request.sizes(phase)) is not None and row.planned is not Policy.Disabled and asked != row.sizes
            for phase, row in plan.phases.items()
        )
        return sizes or request.compile not in (CompileMode.Auto, plan.compile)


def explain(
    manifest: Manifest,
    model: ModelFacts | None = None,
    node: NodeFacts | None = None,
    notes: tuple[str, ...] = (),
    allowed: AllowLists = ALL,
) -> Explanation:
    """The explanation of a service, for what is known of model, node and the operator's lists beyond its spec."""
    spec = manifest.spec
    plan = resolve(resolver_input.features(spec), resolver_input.graph_request(spec))
    config = engine_config(manifest.name, spec, plan)
    place = replace(node or NodeFacts(free_bytes=_free_bytes(spec)), container_bytes=container_bytes(spec))
    facts = start_facts(config, model, place)
    broken = allowed.breach(spec, manifest.namespace)
    above, large = over_limits(spec.resources), _too_large(manifest)
    refused = [
        Obstacle(reason.name, what, step, None)
        for reason, what, step in (
            (Reason.SpecInvalid, *(above or (None, ""))),
            (Reason.NotAllowed, broken, Reason.NotAllowed.row.todo),
            (Reason.SpecTooLarge, large, Reason.SpecTooLarge.row.todo),
        )
        if what is not None
    ]
    lacking = [Obstacle.of(ExitCode.FeatureNotBuilt, row.message) for row in resolver_input.missing(spec)]
    found = can_start(config, plan, model, place, _no_pods(spec))
    by_operator = can_start(config, plan, node=NodeFacts(container_bytes=container_bytes(spec)))
    said = {one.what for one in lacking}
    there, unusual = settled(config, model, place)
    known = config.dtype is not None or place.capability is not None
    refined = refine(plan, facts) if model is not None or node is not None else None
    limits = Limits.of(there, plan, refined or plan, facts, place.free_bytes)
    return Explanation(
        manifest=manifest,
        plan=plan,
        there=refined,
        obstacles=(*refused, *lacking, *(one for one in found if one.what not in said)),
        accepted=not (refused or lacking or by_operator),
        dtype=there.dtype if known else None,
        attention=attention_there(there, model, place) if model is not None and place.capability is not None else None,
        limits=limits,
        memory=RankMemory.of(there, refined or plan, model, limits.kv_tokens),
        sleep=SleepBytes.of(there, model, limits.kv_tokens),
        config_hash=EngineFile.of(config).hash,
        notes=(*notes, *notes_of(manifest, config, model, there, unusual), *assumptions(plan, facts)),
        unchecked=unchecked(plan, facts),
    )


def _too_large(manifest: Manifest) -> str | None:
    """Why the objects of the service are larger than the operator reads, if they are."""
    metadata = {"name": "x", "namespace": "x", "uid": "x", "resourceVersion": "0"}
    made = desire(PlanInput(Service.of({"metadata": metadata, "spec": manifest.raw["spec"]}), Installation()))
    return made.what if isinstance(made, Refused) and made.reason is Reason.SpecTooLarge else None


def phase_dict(phase: Phase, explanation: Explanation) -> dict[str, Any]:
    """One phase as plain values. Without a plan where its policy is refused."""
    planned, final = explanation.plan.phases[phase], explanation.final
    row: PhasePlan = final.phases[phase]
    if phase in explanation.refused:
        expected = {"expected": None} if explanation.there is not None else {}
        numbers = {"sizes": [], "gaps": [], "bytes": 0, "seconds": 0.0, "checkSeconds": 0.0, "duties": []}
        return {"requested": planned.requested.value, "planned": None, **expected, **numbers}
    return {
        "requested": planned.requested.value,
        "planned": planned.planned.value,
        **({"expected": row.planned.value} if explanation.there is not None else {}),
        "sizes": list(row.sizes),
        "gaps": [list(gap) for gap in ladder_gaps(phase, final)],
        "bytes": final.costs[phase].bytes,
        "seconds": round(final.costs[phase].seconds, 1),
        "checkSeconds": round(final.costs[phase].check_seconds, 1),
        "duties": [duty.value for duty in final.duties[phase]],
    }


def ladder_gaps(phase: Phase, plan: Plan) -> tuple[Gap, ...]:
    """Row counts below the largest size that rule PaddingGate sends to the eager path."""
    gated = phase is Phase.Prefill and PADDING_GATE in plan.gates
    return gaps(plan.phases[phase].sizes) if gated else ()


def as_dict(explanation: Explanation) -> dict[str, Any]:
    """The whole explanation as plain values: the form of `-o json` and `-o yaml`."""
    final = explanation.final
    return {
        "name": explanation.manifest.name,
        "namespace": explanation.manifest.namespace,
        "verdict": explanation.verdict.value,
        "graphs": explanation.graphs.value,
        "unchecked": [one.name.lower() for one in explanation.unchecked],
        "warnings": [explanation.slow] if explanation.slow is not None and not explanation.obstacles else [],
        "obstacles": [{"reason": one.reason, "what": one.what, "step": one.step} for one in explanation.obstacles],
        **{phase.value: phase_dict(phase, explanation) for phase in Phase},
        "backend": final.backend.value,
        "compile": final.compile.value,
        "limits": explanation.limits.as_dict(),
        "ranks": explanation.memory and explanation.memory.as_dict(),
        "sleep": explanation.sleep and explanation.sleep.as_dict(),
        "prefillChunk": explanation.limits.chunk,
        "dtype": explanation.dtype,
        "attention": explanation.attention and _attention_dict(explanation.attention),
        "budget": {
            "captureSeconds": final.budget.capture_seconds,
            "checkSeconds": final.budget.check_seconds,
            "startSeconds": final.budget.start_seconds,
            "limitSeconds": explanation.start_limit,
        },
        "decisions": [decision_dict(decision) for decision in final.decisions],
        "gates": [{"rule": name, "because": GATES[name].because, "hint": GATES[name].hint} for name in final.gates],
        "notes": list(explanation.notes),
        "configHash": explanation.config_hash,
        "resolverRevision": final.resolver_revision,
    }


def _attention_dict(choice: Choice) -> dict[str, str | None]:
    return {"kernels": choice.kernels and choice.kernels.value, "because": choice.because}


def decision_dict(decision: Decision) -> dict[str, Any]:
    """One decision as plain values."""
    policy = {"policy": decision.policy.value} if decision.policy else {}
    return {**decision.as_dict(), **policy, "built": is_about_built(decision.rule)}


def _loses(decision: Decision) -> bool:
    return decision.outcome in (Outcome.Excluded, Outcome.Degraded)


def _no_pods(spec: Spec) -> tuple[str, str] | None:
    """Why the service has no pods, if it is to have none, and what to set for it to have some."""
    causes = (
        (spec.suspend, "spec.suspend is true", "spec.suspend: false"),
        (spec.autoscaling is None and spec.replicas == 0, "spec.replicas is 0", "spec.replicas to 1 or more"),
    )
    found = [(why, step) for holds, why, step in causes if holds]
    if not found:
        return None
    return " and ".join(why for why, _ in found), f"set {' and '.join(step for _, step in found)}"


def _free_bytes(spec: Spec) -> int | None:
    """What each rank in a container on a CPU may take for weights and KV cache; None without a limit."""
    limit = container_bytes(spec)
    if limit is None or resolver_input.wants_gpu(spec):
        return None
    ranks = spec.parallelism.ranks_of_pod
    return max(0, limit - processes_bytes(ranks)) // ranks
