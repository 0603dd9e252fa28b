"""Starts that died in a capture, and the weaker plan after enough of them. Pure.

An engine degrades by itself after an error that its process survives. One that ends the process, a fault of the device
for one, is seen by nobody but the operator: so it counts the starts that ended so, and after `graph.retries` more of
them it plans the next weaker policy, once down and never up again while the same rendering is wanted.

What it counts is kept in an annotation on the Deployment's metadata, where no pod is made from it, with the revision of
the undegraded rendering that it speaks of. Another revision (another spec or image; with `updates: Auto` also that of a
newer operator) or another value of the annotation graphpod.dev/adopt makes it void, and the plan is tried again. Status
only repeats it: nothing is decided by status.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import msgspec

from graphpod_operator.api import Spec
from graphpod_operator.observe import Pod
from graphpod_operator.render import scaling
from graphpod_operator.render.deployment import reconfigured
from graphpod_operator.render.subject import Subject
from graphpod_operator.rendering import Rendering, canonical
from graphpod_policy import CompileMode, ExitCode, OnCaptureFailure, Phase, Plan, Policy, Stage, uncompiled, weaken

COUNTED = (ExitCode.CaptureFailed, ExitCode.CaptureOutOfMemory, ExitCode.SelfCheckFailed, ExitCode.CompileFailed)
"""Exit codes of a start that died in a capture. Each has the name of the policy's rule about it."""
RULES = frozenset(code.name for code in COUNTED)

_PHASE = re.compile(r"(?:^|, )(prefill|decode)\b")
"""The engine's message begins with the phase, or with the model, whose name may hold such words, and then the phase."""
BECAUSE_MAX = 160
"""Characters of a step's words: an annotation is no log."""
MAX_STEPS = 16
"""More than lead from the strongest plan to one without graphs."""
_Deaths = Annotated[tuple[str, ...], msgspec.Meta(max_length=4096)]
"""At most a few for each of the pods that a service can have."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step down: the rule that the deaths fire, their words, and the phases that get weaker."""

    rule: str
    because: Annotated[str, msgspec.Meta(max_length=BECAUSE_MAX)]
    phases: Annotated[tuple[Phase, ...], msgspec.Meta(min_length=1, max_length=len(Phase))]

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"{self.rule} is no end of a start that counts")

    def of(self, plan: Plan) -> Plan:
        """`plan` with this step done; phases that are Disabled stay so."""
        if self.rule == ExitCode.CompileFailed.name and plan.compile is not CompileMode.Nothing:
            return uncompiled(plan, tuple(Phase), self.because)
        rule = ExitCode.CaptureFailed.name if self.rule == ExitCode.CompileFailed.name else self.rule
        for phase in self.phases:
            if plan.phases[phase].planned is not Policy.Disabled:
                plan = weaken(plan, phase, rule, self.because)
        return plan


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of one undegraded rendering, revision `of`, under one value of the adopt annotation.

    `starts` are the deaths since the last step, each as `<pod uid>/<number of its run>`; `over` are those that a pod
    got over: it tells of its last one for as long as it lives, whether or not it serves. `runs` is the revision of the
    degraded rendering, once there are steps.
    """

    of: str
    adopt: str = ""
    starts: _Deaths = ()
    over: _Deaths = ()
    steps: Annotated[tuple[Step, ...], msgspec.Meta(max_length=MAX_STEPS)] = ()
    runs: str = ""

    def text(self) -> str | None:
        """The annotation; none while there is nothing to remember."""
        return canonical(asdict(self)) if self.starts or self.over or self.steps else None


def recall(annotation: str | None, of: str, adopt: str | None) -> Memory:
    """What the annotation says of the rendering `of`; nothing, where it speaks of another or cannot be read."""
    fresh, memory = Memory(of, adopt or ""), _read(annotation)
    return memory if memory is not None and (memory.of, memory.adopt) == (fresh.of, fresh.adopt) else fresh


def stronger(annotation: str | None, runs: str) -> str | None:
    """The revision that the rendering `runs` is a weaker form of, by what the annotation says; None: of no other."""
    memory = _read(annotation)
    return memory.of if memory is not None and memory.runs == runs else None


def _read(annotation: str | None) -> Memory | None:
    """What an annotation says, where it is what `Memory.text` writes: whoever may edit the Deployment may edit it."""
    try:
        return msgspec.json.decode(annotation or "null", type=Memory)
    except (ValueError, RecursionError):
        return None


def died(pod: Pod) -> str | None:
    """The name of the death in a capture that the pod's last ended run was, or None."""
    if pod.ended is None or pod.ended.code not in COUNTED:
        return None
    # the restart count grows as the next run begins, and tells of the ended one until then
    return f"{pod.uid}/{pod.restarts - pod.running}"


def noted(memory: Memory, running: Rendering, spec: Spec, pods: Iterable[Pod]) -> Memory:
    """`memory` with what `pods` show of the rendering that runs; one more step when that is enough.

    A pod that serves has got over its death, and a service whose every pod serves over what was counted.
    """
    if not can_weaken(running.policy, spec):
        return memory
    runs = running.config_hash, running.template
    current = [pod for pod in pods if (pod.config_hash, pod.template) == runs and not pod.deleting]
    named = {death: pod for pod in current if (death := died(pod)) is not None}
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


def degraded(pinned: Rendering, memory: Memory, subject: Subject) -> Rendering:
    """The pinned rendering with the memory's steps done, and nothing else changed: the same image, the same pods."""
    plan = pinned.policy
    for step in memory.steps:
        plan = step.of(plan)
    # the operator decided it, though the rules are those of the engine
    told = len(pinned.policy.decisions)
    ours = tuple(replace(decision, stage=Stage.Spec) for decision in plan.decisions[told:])
    plan = replace(plan, decisions=(*plan.decisions[:told], *ours))
    engine = json.loads(pinned.engine)
    if plan.compile is not pinned.policy.compile:
        engine["graph"]["compile"] = plan.compile.value
    for phase, planned in plan.phases.items():
        engine["graph"][phase.value] |= {"planned": planned.planned.value, "sizes": list(planned.sizes)}
    made = replace(pinned, engine=canonical(engine).encode(), policy=plan, undegraded=pinned.revision)
    return replace(made, workload=reconfigured(pinned.workload, subject, plan, made.config_hash))


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
