"""The weaker plan after enough starts that failed in a capture. Pure.

An engine degrades by itself after an error that its process survives. One that ends the process, a fault of the device
for one, only the operator sees: it counts the starts that ended so (`capture_failure_annotation`), and after
`graph.retries` more of them it plans the next weaker policy, once down and never up again while the same rendering is
wanted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace

from graphpod_operator.api.spec import Spec
from graphpod_operator.cache.pod import Pod
from graphpod_operator.plan.capture_failure_annotation import BECAUSE_MAX, CaptureFailures, Step, died
from graphpod_operator.render import scaling
from graphpod_operator.render.owner import Owner
from graphpod_operator.render.pinned_rendering import Rendering, canonical
from graphpod_operator.render.workload.body import reconfigured
from graphpod_policy import ExitCode, OnCaptureFailure, Phase, Plan, Policy, Stage

_PHASE = re.compile(r"(?:^|, )(prefill|decode)\b")
"""The engine's message begins with the phase, or with the model, whose name may hold such words, and then the phase."""


def noted(memory: CaptureFailures, running: Rendering, spec: Spec, pods: Iterable[Pod]) -> CaptureFailures:
    """`memory` with what `pods` show of the rendering that runs; one more step when that is enough.

    A pod that serves has got over its death, and a service whose every pod serves over what was counted.
    """
    if not can_weaken(running.policy, spec):
        return memory
    runs = running.config_hash, running.template
    # a group goes when its leader has ended once
    same = [pod for pod in pods if (pod.config_hash, pod.template) == runs and pod.answers_requests]
    current = [pod for pod in same if not pod.deleting]
    counted = (pod for pod in same if not pod.deleting or pod.index is not None)
    named = {death: pod for pod in counted if (death := died(pod)) is not None}
    over = tuple(sorted(death for death, pod in named.items() if pod.ready or death in memory.over))
    if len(current) >= max(1, scaling.fewest(spec)) and all(pod.ready for pod in current):
        return replace(memory, starts=(), over=over)
    deaths = {death: pod for death, pod in named.items() if death not in over}
    starts = tuple(dict.fromkeys((*memory.starts, *sorted(deaths))))
    if len(starts) <= spec.graph.retries or not deaths:
        return replace(memory, starts=starts, over=over)
    new = [pod for death, pod in deaths.items() if death not in memory.starts] or list(deaths.values())
    step = _step(len(starts), min(new, key=lambda pod: pod.name), running.policy)
    return replace(memory, starts=(), over=(), steps=(*memory.steps, step))


def degraded(pinned: Rendering, memory: CaptureFailures, owner: Owner) -> Rendering:
    """The pinned rendering with the memory's steps done, and nothing else changed: the same image, the same pods."""
    plan = pinned.policy
    for step in memory.steps:
        plan = step.of(plan)
    # the operator decided it, though the rules are those of the engine
    known = len(pinned.policy.decisions)
    ours = tuple(replace(decision, stage=Stage.Spec) for decision in plan.decisions[known:])
    plan = replace(plan, decisions=(*plan.decisions[:known], *ours))
    engine = json.loads(pinned.engine)
    if plan.compile is not pinned.policy.compile:
        engine["graph"]["compile"] = plan.compile.value
    for phase, planned in plan.phases.items():
        engine["graph"][phase.value] |= {"planned": planned.planned.value, "sizes": list(planned.sizes)}
    made = replace(pinned, engine=canonical(engine).encode(), policy=plan, undegraded=pinned.revision)
    return replace(made, workload=reconfigured(pinned.workload, owner, plan, made.config_hash))


def _step(count: int, last: Pod, plan: Plan) -> Step:
    assert last.ended is not None  # it died
    rule = ExitCode(last.ended.code).name
    message = last.ended.message.removeprefix(f"{rule}: ")
    named = _PHASE.search(message)
    phases = tuple(Phase) if named is None else (Phase(named[1]),)
    if all(plan.phases[phase].planned is Policy.Disabled for phase in phases):
        phases = tuple(Phase)  # the words are of a phase that has no graphs
    starts = "1 start" if count == 1 else f"{count} starts"
    tried = " and ".join(f"{phase} {plan.phases[phase].planned}" for phase in phases)
    return Step(rule, f"{starts} of {tried} ended with {rule}: {message}"[:BECAUSE_MAX], phases)


def can_weaken(plan: Plan, spec: Spec) -> bool:
    """Whether a weaker plan is left, and wanted."""
    left = any(phase.planned is not Policy.Disabled for phase in plan.phases.values())
    return left and spec.graph.on_capture_failure is OnCaptureFailure.Degrade
