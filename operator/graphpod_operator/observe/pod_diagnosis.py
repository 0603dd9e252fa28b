"""Why a pod does not serve: from the kubelet's and the scheduler's words to one of our reasons. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from graphpod_operator.api.names import GPU
from graphpod_operator.api.status import Failure
from graphpod_operator.cache.pod import PREPARED_SECONDS, Ended, Pod
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import ConditionType
from graphpod_operator.intent.model_uri import ModelUri
from graphpod_operator.observe.warmup_report import NoReading, Reading, State
from graphpod_operator.plan.capture_failure_annotation import COUNTED
from graphpod_policy import ExitCode

BY_EXIT: dict[int, Reason] = {
    ExitCode.Drained: Reason.ProbeFailed,  # only the kubelet stops the engine of a pod that stays
    ExitCode.ConfigInvalid: Reason.ConfigInvalid,
    ExitCode.ModelInvalid: Reason.ModelInvalid,
    ExitCode.CaptureFailed: Reason.CaptureFailed,
    ExitCode.CaptureOutOfMemory: Reason.CaptureOutOfMemory,
    ExitCode.SelfCheckFailed: Reason.SelfCheckFailed,
    ExitCode.EngineDied: Reason.EngineDied,
    ExitCode.Stuck: Reason.EngineStuck,
    ExitCode.FeatureNotBuilt: Reason.EngineRefused,
    ExitCode.PolicyRefused: Reason.PolicyUnsupported,
    ExitCode.CompileFailed: Reason.CompileFailed,
    ExitCode.ContextTooLong: Reason.ContextTooLong,
    ExitCode.AttentionUnavailable: Reason.AttentionUnavailable,
    ExitCode.KvCacheTooSmall: Reason.KvCacheTooSmall,
    ExitCode.KvCacheTooLarge: Reason.KvCacheTooLarge,
    ExitCode.WeightsTooLarge: Reason.WeightsTooLarge,
    ExitCode.ModelUnsupported: Reason.ModelUnsupported,
    ExitCode.GpuMissing: Reason.GpuMissing,
    ExitCode.ParallelismInvalid: Reason.ParallelismInvalid,
    ExitCode.SettingInvalid: Reason.SettingInvalid,
    ExitCode.DtypeUnavailable: Reason.DtypeUnavailable,
    ExitCode.HostCacheInvalid: Reason.HostCacheInvalid,
    ExitCode.RankDied: Reason.RankDied,
    ExitCode.RankStuck: Reason.RankStuck,
    ExitCode.SourceFailed: Reason.SourceFailed,
}
"""The engine's own exit codes."""

DEATHS = frozenset(BY_EXIT[code] for code in COUNTED)
"""The reasons of a start that died in a capture."""

BY_NAME: dict[str, Reason] = {ExitCode(code).name: reason for code, reason in BY_EXIT.items()}
"""The same by name, as a warm-up report says it."""

BY_WAITING: dict[str, Reason] = {
    "ErrImagePull": Reason.ImagePullFailed,
    "ImagePullBackOff": Reason.ImagePullFailed,
    "ErrImageNeverPull": Reason.ImagePullFailed,
    "InvalidImageName": Reason.ImagePullFailed,
    "RegistryUnavailable": Reason.ImagePullFailed,
    "CreateContainerConfigError": Reason.ContainerRefused,
    "CreateContainerError": Reason.ContainerRefused,
    "RunContainerError": Reason.ContainerRefused,
}
"""The kubelet's words for a container that waits."""

PRECEDENCE: tuple[Reason, ...] = (
    Reason.ModelInvalid,
    Reason.ModelUnsupported,
    Reason.SourceFailed,
    Reason.SelfCheckFailed,
    Reason.CaptureOutOfMemory,
    Reason.CaptureFailed,
    Reason.CompileFailed,
    Reason.StartDied,
    Reason.PolicyUnsupported,
    Reason.ContextTooLong,
    Reason.DtypeUnavailable,
    Reason.AttentionUnavailable,
    Reason.HostCacheInvalid,
    Reason.KvCacheTooSmall,
    Reason.KvCacheTooLarge,
    Reason.WeightsTooLarge,
    Reason.ParallelismInvalid,
    Reason.GpuMissing,
    Reason.SettingInvalid,
    Reason.ConfigInvalid,
    Reason.EngineRefused,
    Reason.OutOfMemory,
    Reason.EngineStuck,
    Reason.RankStuck,
    Reason.RankDied,
    Reason.EngineDied,
    Reason.ProbeFailed,
    Reason.ReferenceNotFound,
    Reason.ContainerRefused,
    Reason.PodNotPrepared,
    Reason.ImagePullFailed,
    Reason.ClaimNotFound,
    Reason.ClaimNotBound,
    Reason.CrashLoop,
    Reason.VolumeElsewhere,
    Reason.Unschedulable,
    Reason.GroupUnschedulable,
    Reason.SchedulingGated,
    Reason.QueuedByKueue,
    Reason.PreviousDraining,
)
"""When pods fail differently, the most specific failure is reported."""

DEATHS_BORNE = 2
"""From this number of restarts on, a new run does not count as past the failure until it serves."""

_NOT_FOUND = re.compile(
    r"(?P<kind>secret|configmap) \"(?P<name>[^\"]+)\" not found|"
    r"couldn't find key (?P<key>\S+) in (?P<of>Secret|ConfigMap) [^/\s]+/(?P<holder>\S+)"
)
"""The kubelet's words for a variable whose source is missing."""
_TOO_LITTLE_MEMORY = re.compile(r"OOM-killed|memory limit too low|minimum memory limit")
"""containerd's and runc's words for a container that cannot start within its memory limit."""
_PULLED = ("ErrImagePull", "ImagePullBackOff")
"""The kubelet's words for a registry that it has asked, by the Secrets of the pod."""
_NOT_BEGUN = ("StartError", "ContainerCannotRun")
"""The kubelet's words for a container that ended before its first process."""
_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_PREEMPTION = re.compile(r",? (?:no new claims to deallocate|preemption:)")
"""What the scheduler says after its reasons: why evicting others would not help."""
_KUEUE = "kueue.x-k8s.io/"
_UNBOUND_CLAIM = ("unbound immediate PersistentVolumeClaims", "didn't find available persistent volumes to bind")
_DYING_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" is being deleted')
_LOST_VOLUME = re.compile(r'persistentvolumeclaim "([^"]+)" bound to non-existent persistentvolume "([^"]+)"')
_ELSEWHERE = "volume node affinity conflict"
_NO_ROOM = re.compile(r"Insufficient ([^\s,.]+(?:\.[^\s,.]+)*)|Too many pods|ReadWriteOncePod")
"""The scheduler's words for what a pod that goes gives free."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The cause that keeps a pod from serving. `what` has no next step yet: the reason's row has it.

    `overcome`: it ended the container's last run, and the present run has got past it.
    """

    reason: Reason
    what: str
    pod: Pod
    overcome: bool = False

    def survived(self) -> Diagnosis:
        """The same where the operator goes on with a weaker plan: no user action is needed yet."""
        if self.reason not in DEATHS:
            return self
        return replace(self, reason=Reason.StartDied, what=f"{self.reason.name}: {self.what}")

    def follows(self, earlier: Failure | None) -> bool:
        """Whether it may be a mere consequence of one before it: the workers of a group end with their leader."""
        ends_with_others = bool(self.pod.index) and self.reason is Reason.RankDied
        return ends_with_others and earlier is not None and earlier.pod != self.pod.name

    @property
    def exit_code(self) -> int | None:
        """The engine's exit code, when that is the cause."""
        by_exit = self.reason in (*BY_EXIT.values(), Reason.StartDied, Reason.OutOfMemory, Reason.CrashLoop)
        return self.pod.ended.code if self.pod.ended is not None and by_exit else None


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known besides the pods: the time (RFC 3339), what they mount of others (kind and name), and the seconds
    after which the kubelet ends a start. `model` is spec.model.uri, `pulls_with` are the Secrets of the registry. The
    operator itself makes the Secret `made` for the pods. `leaving` are pods for whose room a new one may wait.
    """

    now: str
    mounts: tuple[tuple[str, str], ...]
    start_limit: int
    model: str = ""
    pulls_with: tuple[str, ...] = ()
    made: str | None = None
    leaving: tuple[Pod, ...] = ()


def diagnose(
    pods: Iterable[Pod],
    readings: Mapping[str, Reading | NoReading],
    expected: Expected | None = None,
    earlier: Failure | None = None,
) -> Diagnosis | None:
    """The most specific failure among the pods, or None while nothing is known to be wrong. Not one that may follow
    from the `earlier` one, which the status has.
    """
    known = (_of(pod, readings.get(pod.uid), expected) or _unprepared(pod, expected) for pod in pods)
    found = [_as_written(one, expected) for one in known if one is not None and not one.follows(earlier)]
    # of a group the leader knows more: its workers end with it
    return min(found, key=lambda one: (one.overcome, PRECEDENCE.index(one.reason), one.pod.index or 0), default=None)


def _as_written(found: Diagnosis, expected: Expected | None) -> Diagnosis:
    """A fault of the model with its folder as the spec names it, not as it is mounted in the pod; a pull that failed
    with the Secrets that it used, since a kubelet pulls without one that does not exist.
    """
    word, _, rest = found.what.partition(": ")
    if word in _PULLED and expected is not None and expected.pulls_with:
        return replace(found, what=f"{word} with Secret {', '.join(expected.pulls_with)}, if it exists: {rest}")
    if found.reason is not Reason.ModelInvalid or expected is None or not expected.model:
        return found
    folder = re.escape(ModelUri.parse(expected.model).mounted_path)
    return replace(found, what=re.sub(rf"{folder}(?=[/ :;,]|$)", lambda _: expected.model, found.what))


def _of(pod: Pod, reading: Reading | NoReading | None, expected: Expected | None) -> Diagnosis | None:
    if pod.index and pod.ended is not None and pod.ended.code == ExitCode.Drained:
        pod = replace(pod, ended=None)  # its leader let it go; no probe asks it
    if pod.index is not None and pod.ended is not None and _by_itself(pod, pod.ended):
        return _ended(pod, pod.ended, expected)  # whatever it does now: its group is made again
    if pod.deleting or pod.ready:
        return None
    if (unplaced := unscheduled(pod, expected.leaving if expected is not None else ())) is not None:
        return unplaced
    if pod.waiting is not None and (reason := BY_WAITING.get(pod.waiting[0])) is not None:
        return None if _waits_for_ours(pod.waiting[1], expected) else _refused(reason, *pod.waiting, pod)
    state = reading.state if isinstance(reading, Reading) else None
    if state is State.Ready:
        return None
    if pod.ended is not None:
        last = _ended(pod, pod.ended, expected)
        # the place of the failure is unknown: a container that failed twice must serve before its status changes
        return replace(last, overcome=pod.restarts < DEATHS_BORNE and _is_past(last.reason, state))
    if isinstance(reading, Reading) and state is State.Failed and reading.failure is not None:
        # the engine reports its failure before it ends
        reason = BY_NAME.get(reading.failure.reason, Reason.CrashLoop)
        return Diagnosis(reason, reading.failure.message or reason.row.set_when, pod)
    return None


def prepares_until(pods: Iterable[Pod], now: str) -> float | None:
    """Seconds until a pod that its node still prepares has taken too long, or None."""
    taken = (pod.unprepared_seconds(now) for pod in pods if not pod.deleting)
    left = (PREPARED_SECONDS - seconds for seconds in taken if seconds is not None)
    return min((seconds for seconds in left if seconds > 0), default=None)


def _unprepared(pod: Pod, expected: Expected | None) -> Diagnosis | None:
    """Why a pod's containers cannot be created: its node's events say it, which we have no right to read."""
    if expected is None or pod.deleting or pod.ready or pod.gone is not None:
        return None
    taken = pod.unprepared_seconds(expected.now)
    if taken is None or taken < PREPARED_SECONDS:
        return None
    # a claim exists, or the scheduler would not have placed the pod; but its volume may not reach the node
    named = [f"{kind} {name}" for kind, name in expected.mounts if kind != "PersistentVolumeClaim"]
    claims = [f"{kind} {name}" for kind, name in expected.mounts if kind == "PersistentVolumeClaim"]
    if named:
        lacks = f"{' or '.join(named)} may not exist, or lacks a key that the pod mounts"
        unmounted = f"; or it cannot mount {' or '.join(claims)}" if claims else ""
        what = f"not prepared by its node for over a minute: {lacks}{unmounted}"
        return Diagnosis(Reason.PodNotPrepared, what, pod)
    what = "for over a minute its node has neither mounted its volumes nor created its sandbox"
    return Diagnosis(Reason.PodNotPrepared, f"{what}; it mounts {', '.join(claims)}" if claims else what, pod)


def _is_past(reason: Reason, state: State | None) -> bool:
    """Whether a run in this state has got past what ended the last one. Before that, any other report would
    make the condition flap with every restart of a pod that fails again and again.
    """
    captures = ConditionType.GraphsCaptured in reason.row.types
    return state in (State.Capturing, State.SelfChecking) and not captures


def unscheduled(pod: Pod, leaving: Iterable[Pod] = ()) -> Diagnosis | None:
    """Why a pod has no node, or None while no reason is known. It may wait for the room of those that are `leaving`."""
    if pod.gates:
        queued = any(gate.startswith(_KUEUE) for gate in pod.gates)
        reason = Reason.QueuedByKueue if queued else Reason.SchedulingGated
        return Diagnosis(reason, f"held back by {', '.join(pod.gates)}", pod)
    if (message := pod.scheduling) is None:
        return None
    if (match := _MISSING_CLAIM.search(message)) is not None:
        return Diagnosis(Reason.ClaimNotFound, f"PersistentVolumeClaim {match[1]} does not exist", pod)
    if (match := _DYING_CLAIM.search(message)) is not None:
        return Diagnosis(Reason.ClaimNotFound, f"PersistentVolumeClaim {match[1]} is being deleted", pod)
    if (match := _LOST_VOLUME.search(message)) is not None:
        return Diagnosis(Reason.ClaimNotBound, f"PersistentVolumeClaim {match[1]} has lost its volume {match[2]}", pod)
    if any(words in message for words in _UNBOUND_CLAIM):
        return Diagnosis(Reason.ClaimNotBound, "the PersistentVolumeClaim of spec.model.uri has no volume yet", pod)
    words = _PREEMPTION.split(message)[0] or "no node fits"
    if (first := next((one for one in leaving if _gives_room(one, words)), None)) is not None:
        counted = first.gpus > 0 and f"Insufficient {GPU}" in words
        waits = f"waits for {f'{first.gpus} {GPU}' if counted else 'the room'} that pod {first.name} holds"
        more = f"needs {pod.gpus} {GPU} of one node, and " if counted and pod.gpus > first.gpus else ""
        return Diagnosis(Reason.PreviousDraining, f"{more}{waits} until it has gone", pod)
    no_node = Reason.Unschedulable if pod.index is None else Reason.GroupUnschedulable
    reason = Reason.VolumeElsewhere if _ELSEWHERE in message else no_node
    # the scheduler does not say how many of them it looked for
    wants = f"it needs {pod.gpus} free {GPU} of one node: " if pod.gpus and f"Insufficient {GPU}" in message else ""
    return Diagnosis(reason, wants + words, pod)


def _gives_room(leaving: Pod, message: str) -> bool:
    """Whether what the scheduler misses may be what this pod holds; of one without GPUs all but these."""
    return any(found[1] != GPU or leaving.gpus for found in _NO_ROOM.finditer(message))


def _waits_for_ours(message: str, expected: Expected | None) -> bool:
    """Whether it is the operator that makes what is missing: there is nothing to do for a user."""
    match = _NOT_FOUND.search(message)
    return match is not None and expected is not None and match["name"] is not None and match["name"] == expected.made


def _refused(reason: Reason, word: str, message: str, pod: Pod) -> Diagnosis:
    """Why the kubelet cannot make or begin the container, in its words."""
    if (match := _NOT_FOUND.search(message)) is not None:
        kind = {"secret": "Secret", "configmap": "ConfigMap"}.get(match["kind"] or "", match["of"])
        name = f"{kind} {match['name'] or match['holder']}"
        what = f"{name} does not exist" if match["key"] is None else f"{name} has no key {match['key']}"
        return Diagnosis(Reason.ReferenceNotFound, what, pod)
    if _TOO_LITTLE_MEMORY.search(message):
        return Diagnosis(Reason.OutOfMemory, "the container cannot start within its memory limit", pod)
    return Diagnosis(reason, f"{word}: {message}", pod)


def _by_itself(pod: Pod, ended: Ended) -> bool:
    """Whether a pod of a group has ended without being asked to: its container ran again, or its engine said why."""
    said = ended.code in BY_EXIT and ended.code != ExitCode.Drained
    return pod.restarts > 0 or said or ended.reason == "OOMKilled"


def _ended(pod: Pod, ended: Ended, expected: Expected | None) -> Diagnosis:
    if ended.reason == "OOMKilled":
        return Diagnosis(Reason.OutOfMemory, "the kernel ended the engine: out of memory", pod)
    if ended.reason in _NOT_BEGUN:
        return _refused(Reason.ContainerRefused, ended.reason, ended.message, pod)
    reason = BY_EXIT.get(ended.code)
    if reason is None and pod.index:
        said = f": {ended.message}" if ended.message else ""
        return Diagnosis(Reason.RankDied, f"worker {pod.index} has ended with exit code {ended.code}{said}", pod)
    if reason is None:
        said = f": {ended.message}" if ended.message else ""
        return Diagnosis(Reason.CrashLoop, f"the engine ended with exit code {ended.code}{said}", pod)
    # the engine's first line reads `<Reason>: <cause>`; the reason stands in the condition already
    what = ended.message.removeprefix(f"{ExitCode(ended.code).name}: ")
    if reason is Reason.ProbeFailed and expected is not None:
        what = f"{what or 'the kubelet stopped the engine'}; the start limit is {expected.start_limit} s"
    return Diagnosis(reason, what or reason.row.set_when, pod)
