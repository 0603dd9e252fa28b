"""What is found of groups of pods alone. Pure."""

from __future__ import annotations

from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.render.workload.rolling import surges
from graphpod_operator.status.finding import Finding


def find_no_surge(found: Service, desired: Desired, seen: Observed, current: tuple[Pod, ...]) -> Finding | None:
    """That a rollout of one group, in which the new one comes before the old one goes, never begins: the controller of
    LeaderWorkerSets cannot do that.
    """
    made = next((child.body for child in desired.children if child.resource is Resource.LeaderWorkerSet), None)
    rollout = seen.rollout
    if made is None or rollout is None or rollout.asked != 1 or rollout.may_surge or not surges(made):
        return None
    if found.paused or (desired.weights is not None and desired.weights.waits):
        return None  # the operator itself has not begun it
    stays = any(pod.index == 0 and not pod.deleting for pod in seen.pods)
    if current or not stays:
        return None
    return Finding(
        Reason.LeaderWorkerSetOutdated,
        "LeaderWorkerSet before 0.9 does not begin a rollout by Surge of one group; install 0.9 or newer, or set "
        "spec.rollout.strategy: Replace",
    )
