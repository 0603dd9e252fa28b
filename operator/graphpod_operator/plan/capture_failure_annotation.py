"""Starts that failed in a capture: which count, and the record of them. Pure.

The record is an annotation on the Deployment's metadata, where no pod is made from it, with the revision of the
undegraded rendering that it speaks of. Another revision (another spec or image; with `updates: Auto` also that of a
newer operator) or another value of the annotation graphpod.dev/adopt makes it void, and the plan is tried again.
Status only repeats it: nothing is decided by status.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import msgspec

from graphpod_operator.cache.pod import Pod
from graphpod_operator.render.pinned_rendering import canonical
from graphpod_policy import CompileMode, ExitCode, Phase, Plan, Policy, uncompiled, weaken

COUNTED = (ExitCode.CaptureFailed, ExitCode.CaptureOutOfMemory, ExitCode.SelfCheckFailed, ExitCode.CompileFailed)
"""Exit codes of a start that died in a capture. Each has the name of the policy's rule about it."""
RULES = frozenset(code.name for code in COUNTED)
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
class CaptureFailures:
    """What is remembered of one undegraded rendering, revision `of`, under one value of the adopt annotation.

    `starts` are the deaths since the last step, each as `<pod uid>/<number of its run>`; `over` are those that a pod
    got over: it reports its last one for as long as it lives, whether or not it serves. `runs` is the revision of the
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


def recall(annotation: str | None, of: str, adopt: str | None) -> CaptureFailures:
    """What the annotation says of the rendering `of`; nothing, where it speaks of another or cannot be read."""
    fresh, memory = CaptureFailures(of, adopt or ""), _read(annotation)
    return memory if memory is not None and (memory.of, memory.adopt) == (fresh.of, fresh.adopt) else fresh


def stronger(annotation: str | None, runs: str) -> str | None:
    """The revision that the rendering `runs` is a weaker form of, by what the annotation says; None: of no other."""
    memory = _read(annotation)
    return memory.of if memory is not None and memory.runs == runs else None


def _read(annotation: str | None) -> CaptureFailures | None:
    """What an annotation says, where it is what `CaptureFailures.text` writes: whoever may edit the Deployment may
    edit it.
    """
    try:
        return msgspec.json.decode(annotation or "null", type=CaptureFailures)
    except (ValueError, RecursionError):
        return None


def died(pod: Pod) -> str | None:
    """The name of the death in a capture that the pod's last ended run was, or None."""
    if pod.ended is None or pod.ended.code not in COUNTED:
        return None
    if pod.index is not None:
        return f"{pod.uid}/0"  # its group goes with its first death: however often it is seen to end until then
    # the restart count grows as the next run begins, and is about the ended one until then
    return f"{pod.uid}/{pod.restarts - pod.running}"
