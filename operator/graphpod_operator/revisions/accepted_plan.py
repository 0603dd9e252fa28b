"""The plan that status reports: of the spec, or of the last accepted one while the present one is refused. Pure.

A spec that will not run has no plan in status. That of what runs is read from the ControllerRevision of what makes the
pods, so it says what was decided at that time, whatever the rules of today are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from graphpod_operator.cache.controller_revision import ENGINE
from graphpod_operator.plan import capture_failure_annotation
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.own_revisions import kept_as, own_revisions, running_as
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.pinned_rendering import Rendering
from graphpod_operator.render.pod.container import start_limit
from graphpod_policy import Device, Features, GraphRequest, Plan, resolve


@dataclass(frozen=True, slots=True)
class AcceptedPlan:
    """The plan as far as status reports it, the hash of its engine's configuration and the name of its rendering.

    `start_limit` is in seconds; `deaths` counts the starts that failed in a capture.
    """

    policy: Plan
    config_hash: str
    revision: str
    start_limit: int
    deaths: int

    @classmethod
    def of(cls, desired: Desired) -> AcceptedPlan:
        """Of a spec that is accepted."""
        starts = desired.capture_failures.starts if desired.capture_failures is not None else ()
        return cls(desired.policy, desired.config_hash, desired.revision, desired.start_limit, len(starts))


class _Features(msgspec.Struct, frozen=True):
    device: Device = Device.Cpu


class _Engine(msgspec.Struct, frozen=True):
    """What of an engine's configuration is not in the kept words of its plan."""

    features: _Features = _Features()


def accepted_plan(given: PlanInput, outcome: Desired | Refused, stopped: Refused | None) -> AcceptedPlan | None:
    """What status reports of a service with this `outcome` of planning, whose apply was `stopped`; None where its spec
    is refused and nothing runs.
    """
    return AcceptedPlan.of(outcome) if isinstance(outcome, Desired) and stopped is None else _of_what_runs(given)


def _of_what_runs(given: PlanInput) -> AcceptedPlan | None:
    """What the pods of a service run by, whatever its spec asks for now; None where nothing makes pods, or where it is
    unknown what they were made from.
    """
    kept, service = own_revisions(given.found, given.revisions), given.found.key.name
    running = _read(running_as(given, kept))
    if running is None or given.running is None:
        return None
    pinned = running
    if running.undegraded is not None:
        pinned = _read(kept_as(f"{service}-{running.undegraded}", kept)) or running
    failures = capture_failure_annotation.recall(given.capture_failures, pinned.revision, given.found.adopt)
    return AcceptedPlan(
        policy=replace(running.policy, phases=pinned.policy.phases),
        config_hash=running.config_hash,
        revision=given.running.revision,
        start_limit=start_limit(running.workload),
        deaths=len(failures.starts),
    )


def _read(data: Mapping[str, str] | None) -> Rendering | None:
    """The rendering that was kept, whichever version of the operator made it."""
    if data is None:
        return None
    try:
        device = msgspec.json.decode(data[ENGINE], type=_Engine).features.device
    except ValueError:
        return None
    return Rendering.read(data, resolve(Features(device=device), GraphRequest()))
