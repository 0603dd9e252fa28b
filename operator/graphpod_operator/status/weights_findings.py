"""What a service's conditions and its status report of weights that sleep, or that were replaced in place. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphpod_operator.api.status import PodWeightsStatus, WeightsStatus
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import ANNOTATION_MAX
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.observe.warmup_report import Reading, State
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.weights_orders import STANDING, WAKING, PodWeights, Wish
from graphpod_operator.status.finding import Finding
from graphpod_policy.units import size

MOST_PODS = 64
HELD = "the annotation graphpod.dev/paused holds back the orders to pods"


def weights_of(pods: Iterable[Pod], seen: Observed) -> tuple[PodWeights, ...]:
    """What those of `pods` report whose graphs are proved, by name."""
    found = []
    for pod in sorted(pods, key=lambda one: one.name):
        reading = seen.readings.get(pod.uid)
        if not pod.running or not isinstance(reading, Reading) or reading.state is not State.Ready:
            continue
        if (said := reading.sleep) is not None:
            found.append(
                PodWeights(
                    *(pod.uid, pod.name, pod.ready, said.state, said.idle, said.model_revision),
                    *(said.refused, said.problem, said.freed_bytes),
                )
            )
    return tuple(found)


def is_settled(desired: Desired, seen: Observed) -> bool:
    """Whether the Deployment has finished the rollout of what is planned, and no other pod is left."""
    rollout = seen.rollout
    if rollout is None or not rollout.observed or rollout.updated != rollout.replicas:
        return False
    planned = desired.config_hash, desired.template
    alone = all((pod.config_hash, pod.template) == planned for pod in seen.pods if not pod.deleting and not pod.gone)
    return alone and (rollout.complete or rollout.updated == rollout.available == rollout.asked)


def find_away(wanted: Wish, pods: Sequence[PodWeights], asked: int) -> Finding | None:
    """What WorkloadAvailable says while pods sleep until they are woken; None while none does."""
    away = [one for one in pods if one.commanded]
    slept = [one for one in away if one.slept]
    if wanted.sleeps and len(slept) == len(pods) == asked != 0:
        return Finding(Reason.Sleeping, _all_asleep(slept))
    if wanted.paused and away and _stands(pods):
        return _held_back(slept, asked)
    if wanted.sleeps:
        if not away:
            return None
        return Finding(Reason.FallingAsleep, f"{len(slept)} of {asked} pods sleep")
    if (refused := next((one for one in away if one.trouble), None)) is not None:
        return Finding(Reason.WakeRefused, f"pod {refused.name}: {refused.trouble}")
    if not away and not any(one.state == WAKING for one in pods):
        return None
    return Finding(Reason.Waking, f"{sum(one.ready for one in pods)} of {asked} pods serve, the others wake")


def find_asleep(wanted: Wish, pods: Sequence[PodWeights], asked: int, settled: bool, seen: Observed) -> Finding | None:
    """What the condition Asleep says; None while the annotation does not ask for it."""
    if not wanted.asleep:
        return None
    if wanted.not_asleep:
        return Finding(Reason.SleepRefused, wanted.not_asleep)
    slept = [one for one in pods if one.slept]
    if asked == 0 or (slept and len(slept) == len(pods) == asked):
        return Finding(Reason.Asleep, _all_asleep(slept) if slept else "the spec requests no pods")
    if wanted.paused and _stands(pods):
        return _held_back(slept, asked)
    for one in pods:
        trouble = one.trouble if not one.commanded else None
        if (why := trouble or seen.unsent.get(one.uid)) is not None:
            return Finding(Reason.SleepRefused, f"pod {one.name}: {_without_name(why, one)}")
    if not settled:
        return Finding(Reason.SleepPending, "a rollout is under way, and its pods sleep once it has ended")
    return Finding(Reason.FallingAsleep, f"{len(slept)} of {asked} pods sleep")


def find_reload(wanted: Wish, pods: Sequence[PodWeights], asked: int, settled: bool, seen: Observed) -> Finding | None:
    """What ModelAvailable says of weights that are to be replaced in place, where pods have loaded some; None where the
    annotation asks for none.
    """
    if wanted.revision is None or asked == 0:
        return None
    if wanted.not_reloaded:
        return Finding(Reason.ReloadRefused, wanted.not_reloaded)
    done = [one for one in pods if one.revision == wanted.revision]
    named = f"the weights of {wanted.revision[:64]!r}"
    if len(done) == len(pods) == asked:
        return Finding(Reason.Reloaded, f"{asked} of {asked} pods serve {named}")
    for one in pods:
        why = one.problem if one.refused == wanted.revision else seen.unsent.get(one.uid)
        if why and one not in done:
            count = f"; {len(done)} of {asked} pods serve {named}, the others the earlier ones" if done else ""
            return Finding(Reason.ReloadRefused, f"pod {one.name}: {_without_name(why, one)}{count}")
    if wanted.paused and _stands(pods):
        return Finding(Reason.Loaded, f"{len(done)} of {asked} pods serve {named}, and {HELD}")
    if wanted.sleeps:
        return Finding(Reason.ReloadPending, f"the pods sleep, and get {named} once they are awake")
    if not settled or len(pods) < asked:
        return Finding(Reason.ReloadPending, f"a pod still starts, and the pods get {named} after that")
    return Finding(Reason.Reloading, f"{len(done)} of {asked} pods serve {named}")


def weights_status(wanted: Wish, pods: Sequence[PodWeights], asked: int) -> WeightsStatus | None:
    """`status.weights`; None while no annotation asks for anything and no pod sleeps until it is woken."""
    if not pods or not (wanted.asleep or wanted.revision is not None or any(one.commanded for one in pods)):
        return None
    slept = [one for one in pods if one.slept]
    served = {one.revision for one in pods}
    return WeightsStatus(
        asleep=f"{len(slept)}/{len(pods)}",
        freed_bytes=sum(one.freed for one in slept),
        reload=wanted.revision if wanted.revision is not None and 0 < len(wanted.revision) <= ANNOTATION_MAX else None,
        revision=(served.pop() or None) if len(served) == 1 and len(pods) == asked else None,
        pods=tuple(
            PodWeightsStatus(name=one.name, state=one.state[:64], revision=one.revision or None)
            for one in pods[:MOST_PODS]
        ),
    )


def _stands(pods: Sequence[PodWeights]) -> bool:
    """Whether the weights of none are on their way."""
    return all(one.state in STANDING for one in pods)


def _held_back(slept: Sequence[PodWeights], asked: int) -> Finding:
    return Finding(Reason.SleepPaused, f"{len(slept)} of {asked} pods sleep, and {HELD}")


def _all_asleep(pods: Sequence[PodWeights]) -> str:
    return f"{len(pods)} of {len(pods)} pods sleep; {size(sum(one.freed for one in pods))} of device memory are free"


def _without_name(words: str, one: PodWeights) -> str:
    return words.removeprefix(f"pod {one.name}: ")
