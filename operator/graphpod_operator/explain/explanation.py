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
from graphpod_operator.explain.rank_memory import RankMemory
from graphpod_operator.explain.sleep_bytes import SleepBytes
from graphpod_operator.install.allow_lists import AllowLists
from graphpod_operator.install.installation import Installation
from graphpod_operator.intent import resolver_input
from graphpod_operator.intent.asked_downloads import downloads
from graphpod_operator.intent.engine_config import EngineFile, engine_config
from graphpod_operator.intent.over_limits import over_limits
from graphpod_operator.intent.resolver_input import container_bytes
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.pod.container import start_ceiling
from graphpod_policy import (
    CompileMode,
    Decision,
    Device,
    EngineConfig,
    ExitCode,
    Facts,
    ModelFacts,
    ModelPath,
    NodeFacts,
    Obstacle,
    Outcome,
    Phase,
    PhasePlan,
    Plan,
    Policy,
    SpeculativeMethod,
    attention_there,
    can_start,
    refine,
    resolve,
    settled,
    start_facts,
)
from graphpod_policy.attention import Choice
from graphpod_policy.model.families import transformers_version
from graphpod_policy.node import processes_bytes
from graphpod_policy.rules import GATES, is_about_built
from graphpod_policy.rules.gates import PADDING_GATE, Gap, gaps
from graphpod_policy.start.footprint import page_bytes, read_bytes, stream_bytes, weights_bytes
from graphpod_policy.units import duration, size

ALL = AllowLists()
"""No list restricts anything."""
SLOW_SECONDS = 1800
"""An estimate of a start above this is a warning."""
LONGEST_SECONDS = 168 * 3600
"""What spec.engine.startTimeout may be."""


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


class Unchecked(StrEnum):
    """What a verdict does not rest on, because it was not given."""

    Model = "model"
    """Architecture, context length, and memory for the weights."""
    Node = "GPU"
    """Attention kernels and memory. Of a service on a CPU, the spec's limits are the node."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """All there is to say of one service. `there` is the plan as the engine would refine it with the given facts."""

    manifest: Manifest
    plan: Plan
    there: Plan | None
    obstacles: tuple[Obstacle, ...]
    """All that stands against a start; the first is what the operator or the engine would end by."""
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
            if seconds <= LONGEST_SECONDS:
                steps.append(f"set spec.engine.startTimeout to {math.ceil(seconds / 60)}m")
        captured = [phase for phase in Phase if self.final.phases[phase].planned is not Policy.Disabled]
        if 2 * graphs < seconds or not captured:
            most = f"{most}; most of that is the load of the weights"
        else:
            phase = captured[0]
            fewer = f"list fewer and smaller sizes in spec.graph.sizes.{phase}"
            steps.append(f"{fewer}, or set spec.graph.{phase} to Disabled")
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
            (Reason.SpecInvalid, above, "lower the request, or raise the limit"),
            (Reason.NotAllowed, broken, Reason.NotAllowed.row.todo),
            (Reason.SpecTooLarge, large, Reason.SpecTooLarge.row.todo),
        )
        if what is not None
    ]
    lacking = [Obstacle.of(ExitCode.FeatureNotBuilt, row.message) for row in resolver_input.missing(spec)]
    found = can_start(config, plan, model, place, _no_pods(spec))
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
        dtype=there.dtype if known else None,
        attention=attention_there(there, model, place) if model is not None and place.capability is not None else None,
        limits=limits,
        memory=RankMemory.of(there, refined or plan, model, limits.kv_tokens),
        sleep=SleepBytes.of(there, model, limits.kv_tokens),
        config_hash=EngineFile.of(config).hash,
        notes=(
            *notes,
            *_downloads(manifest),
            *_streams(spec, there, model),
            *((unusual,) if unusual else ()),
            *_path(model),
            *_draft(config, model),
            *_ranks(config),
            *_groups(config),
            *_assumptions(plan, facts),
        ),
        unchecked=_unchecked(plan, facts),
    )


def _downloads(manifest: Manifest) -> tuple[str, ...]:
    """Where weights that are not on a claim yet go to."""
    found = downloads(manifest.name, manifest.spec.model_dump(mode="json", by_alias=True, exclude_none=True))
    return tuple(
        f"weights: Job {one.job} downloads {one.uri.text} to folder {one.folder} of claim {one.claim}, once for all "
        "services that name the same; pods are created when it is complete (docs/how-to/download.md)"
        for one in found
    )


def _streams(spec: Spec, config: EngineConfig, model: ModelFacts | None) -> tuple[str, ...]:
    """What it costs that weights are on no disk."""
    if not spec.model.stream:
        return ()
    most = spec.replicas if spec.autoscaling is None else spec.autoscaling.max
    each = "all its weights (with --model-config: how many bytes)"
    if model is not None and model.not_built is None:
        bytes_each = read_bytes(config, model)
        each = f"about {size(bytes_each)}" + (f" ({size(most * bytes_each)} for {most} pods)" if most > 1 else "")
    ranks = config.features.ranks_of_node
    staged = size(ranks * stream_bytes(config, model)) + " of the pod's memory"
    staged += f", for {ranks} ranks" if ranks > 1 else ""
    return (
        f"weights: each pod reads {each} of {spec.model.uri} at each start, straight into the device. Every replica, "
        "restart and rollout reads them again; with spec.model.cache they are downloaded once (docs/how-to/stream.md). "
        f"Meanwhile buffers take up to {staged}",
    )


def _path(model: ModelFacts | None) -> tuple[str, ...]:
    """Whose modules compute the model, where they are not the engine's own."""
    if model is None or model.path is ModelPath.Native or model.not_built is not None:
        return ()
    version = transformers_version()
    return (
        f"model path: {model.path}. {model.architecture} of transformers {version} computes the model, on graphpod's "
        "weights, attention, KV cache and graphs (docs/how-to/any-model.md)",
    )


def _draft(config: EngineConfig, model: ModelFacts | None) -> tuple[str, ...]:
    """What the draft model takes, where its shape is known; that it is not where there is one."""
    own_layers = config.features.speculative is SpeculativeMethod.Mtp
    if config.features.speculative_draft is None and not own_layers:
        return ()
    if model is None or model.draft is None:
        if own_layers:
            return ("memory of the model's own layers that draft is not counted. With --model-config it is",)
        return ("memory of the draft model is not counted. With --model-config and --draft-config it is",)
    settled_config, _ = settled(config, model, NodeFacts())
    if settled_config.dtype is None:
        return ()
    weights = size(weights_bytes(settled_config, model.draft))
    share = page_bytes(settled_config, model.draft) / page_bytes(settled_config, model)
    what = "model" if model.draft.head is None else "head"
    return (f"the draft {what} takes {weights} for its weights, and {share:.0%} of the KV cache",)


def _ranks(config: EngineConfig) -> tuple[str, ...]:
    """That ranks on a CPU are there to try them."""
    if config.features.ranks == 1 or config.features.device is Device.Cuda:
        return ()
    each = "each of " if config.features.nodes > 1 else ""
    return (
        f"spec.parallelism: {config.features.ranks} ranks without nvidia.com/gpu in spec.resources.limits: they are "
        f"processes of {each}{config.features.nodes} container{'s' if each else ''}, which share its processors and "
        "memory. It makes nothing faster",
    )


def _groups(config: EngineConfig) -> tuple[str, ...]:
    """What several nodes need of the cluster, which nothing here has asked."""
    if (nodes := config.features.nodes) == 1:
        return ()
    return (
        f"spec.parallelism.nodes: {nodes} pods are one replica, each with {config.features.ranks_of_node} of the "
        f"{config.features.ranks} ranks; spec.resources are for each pod. The cluster needs the kind LeaderWorkerSet "
        "(docs/how-to/several-nodes.md)",
    )


def _too_large(manifest: Manifest) -> str | None:
    """Why the objects of the service are larger than the operator reads, if they are."""
    metadata = {"name": "x", "namespace": "x", "uid": "x", "resourceVersion": "0"}
    made = desire(PlanInput(Service.of({"metadata": metadata, "spec": manifest.raw["spec"]}), Installation()))
    return made.what if isinstance(made, Refused) and made.reason is Reason.SpecTooLarge else None


def phase_dict(phase: Phase, explanation: Explanation) -> dict[str, Any]:
    """One phase as plain values."""
    planned, final = explanation.plan.phases[phase], explanation.final
    row: PhasePlan = final.phases[phase]
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


def _unchecked(plan: Plan, facts: Facts) -> tuple[Unchecked, ...]:
    gpu = plan.features.device is Device.Cuda and facts.gpu_memory_bytes is None
    return (*((Unchecked.Model,) if facts.model is None else ()), *((Unchecked.Node,) if gpu else ()))


def _assumptions(plan: Plan, facts: Facts) -> tuple[str, ...]:
    """What the numbers rest on."""
    weights = "8 billion" if plan.features.device is Device.Cuda else "135 million"
    said = {
        Unchecked.Model: f"bytes and seconds are those of a model of {weights} weights. With --model-config FILE they "
        "are those of your model, its architecture, context length and memory are checked, and the tokens of the KV "
        "cache are estimated",
        Unchecked.Node: "default ladders are those of the largest GPUs. With "
        f"--node gpu=H200,count={max(1, plan.features.gpus)} they are those of your GPU, and its attention kernels "
        "and memory are checked",
    }
    return tuple(said[one] for one in _unchecked(plan, facts))
