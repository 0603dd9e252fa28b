"""What the tests of the status say: what was observed, what was told."""

import dataclasses
from typing import Any

from graphpod_operator.api.status import Status
from graphpod_operator.cache.child import DeploymentRollout
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.observe.warmup_report import NoReading, Reading
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.revisions.accepted_plan import AcceptedPlan
from graphpod_operator.status.status import status
from tests.unit.operator.objects import INSTALLED, inference_service, plain_template, planned, pod, report, rollout

NOW = "2026-01-01T00:00:00Z"


LATER = "2026-01-01T00:01:00Z"


HASH = planned().config_hash


def seen(
    pods: list[dict[str, Any]] | None = None,
    readings: dict[str, Reading | NoReading] | None = None,
    report_of: DeploymentRollout | None = None,
) -> Observed:
    return Observed(report_of, tuple(Pod.of(one) for one in pods or []), readings or {})


def reading(name: str = "demo-abc-1", **changes: Any) -> Reading:
    return Reading.model_validate(report(name, **{"config_hash": HASH, **changes}))


def the(
    observed: Observed,
    refused: Refused | None = None,
    before: dict[str, Any] | None = None,
    runs: Desired | None = None,
    **spec: Any,
) -> Status:
    """`runs`: what makes the pods while this spec is refused."""
    found = Service.of(inference_service(status=before, **spec))
    outcome = desire(PlanInput(found, INSTALLED))
    if isinstance(outcome, Desired):  # a pod has the form of its spec, unless it is said to have another
        plain, form = plain_template(), outcome.template
        pods = (dataclasses.replace(one, template=form) if one.template == plain else one for one in observed.pods)
        observed = dataclasses.replace(observed, pods=tuple(pods))
    accepted = outcome if isinstance(outcome, Desired) and refused is None else runs
    plan = AcceptedPlan.of(accepted) if accepted is not None else None
    return status(found, outcome, refused, observed, NOW if before is None else LATER, plan)


def words(of: Status) -> dict[str, tuple[str, str]]:
    return {condition.type: (condition.status.value, condition.reason) for condition in of.conditions}


UID = "uid-demo-abc-1"


SERVING = rollout()


STARTING = rollout(available=0)


READY = seen([pod(config_hash=HASH, ready=True)], {UID: reading()}, SERVING)


DIED = {"lastState": {"terminated": {"exitCode": 15, "message": "EngineDied: segmentation fault"}}}


EVICTED = {
    "phase": "Failed", "reason": "Evicted", "message": "the node was low on memory",
    "containerStatuses": [{"name": "engine", "state": {"terminated": {"exitCode": 137}}}],
}  # fmt: skip
