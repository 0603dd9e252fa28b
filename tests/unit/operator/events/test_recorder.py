"""Events: each transition once, and few of a service that changes all the time."""

import dataclasses
from itertools import pairwise
from typing import Any

import pytest

from graphpod_operator.api.names import PAUSED_ANNOTATION
from graphpod_operator.api.status import Status
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.events.event import transitions
from graphpod_operator.events.recorder import BURST, FOR_WARNINGS, Recent
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.refused import Refused
from tests.unit.operator.objects import inference_service, planned, pod
from tests.unit.operator.told import HASH, READY, SERVING, UID, reading, seen, the
from tests.unit.operator.world import World

PLACED = seen([{**pod(config_hash=HASH, ready=True), "spec": {"nodeName": "node-1"}}], {UID: reading()}, SERVING)


def stored(told: Status) -> dict[str, Any]:
    return told.model_dump(mode="json", by_alias=True, exclude_none=True)


def test_an_event_tells_a_transition_once_and_only_where_it_has_a_notice() -> None:
    starting = the(seen())
    assert [event.reason for event in transitions({}, starting)] == ["Planned"]
    scheduled, event = transitions(stored(starting), the(PLACED))
    assert (scheduled.notice.value, scheduled.reason) == ("Normal", "Scheduled")
    assert (event.notice.value, event.reason) == ("Normal", "Ready")
    assert transitions(stored(the(READY)), the(READY)) == ()

    recent, found = Recent(), Service.of(inference_service())
    assert recent.is_new(found, event, 0.0)
    assert not recent.is_new(found, dataclasses.replace(event, message="of another pod"), 599.0)
    assert recent.is_new(dataclasses.replace(found, uid="other"), event, 599.0)
    assert recent.is_new(dataclasses.replace(found, generation=2), event, 599.0)
    assert recent.is_new(found, event, 601.0)


def test_a_service_that_changes_all_the_time_is_told_of_a_few_times_and_then_once_in_five_minutes() -> None:
    """Each edit is a generation of its own, so the same reason is news each time; the API server's events are not."""
    recent, found = Recent(), Service.of(inference_service())
    (event,) = transitions({}, the(seen(), Refused(Reason.NameCollision, "Service ns/demo exists")))
    edits = [dataclasses.replace(found, generation=at) for at in range(3600)]
    told = [at for at, edit in enumerate(edits) if recent.is_new(edit, event, float(at))]
    assert told[:25] == list(range(25))
    assert all(later - earlier >= 300 for earlier, later in pairwise(told[25:]))
    assert 35 <= len(told) <= 37
    assert recent.is_new(dataclasses.replace(found, uid="other"), event, 3600.0), "another's budget is its own"


def test_the_stages_of_a_start_are_told_with_plan_and_seconds() -> None:
    first, ready = the(seen()), the(PLACED)
    (event,) = transitions({}, first)
    assert event.message == f"revision {first.revision} is planned: prefill Breakable, decode Full"
    assert [event.message for event in transitions(stored(first), ready)] == [
        "1 of 1 pods of this spec have a node",
        f"revision {first.revision} serves on proved graphs: 26/26 captured in 2.0 s",
    ]


def test_a_rollout_is_told_with_both_revisions_and_a_refused_spec_begins_none() -> None:
    before, after = the(READY), the(seen(), graph={"decode": "Breakable"})
    (begun,) = transitions(stored(before), after)
    assert begun.reason == "RolloutStarted"
    assert begun.message == (
        f"revision {after.revision} is planned: prefill Breakable, decode Breakable; it replaces revision "
        f"{before.revision}"
    )
    (refused,) = transitions(stored(before), the(READY, runs=planned(), graph={"prefill": "Full"}))
    assert refused.reason == "FeatureNotBuilt"
    assert transitions(stored(the(READY, runs=planned(), graph={"prefill": "Full"})), before)[-1].reason == "Ready"


def test_eager_pods_are_told_without_captures() -> None:
    spec = {"graph": {"prefill": "Disabled", "decode": "Disabled"}}
    plan = planned(**spec)
    told = reading(config_hash=plan.config_hash, prefill="Disabled", decode="Disabled", captured=(0, 0))
    ready = the(seen([pod(config_hash=plan.config_hash, ready=True)], {UID: told}, SERVING), **spec)
    assert transitions(stored(the(seen(), **spec)), ready)[-1].message == (
        f"revision {plan.revision} serves eagerly: both phases are Disabled"
    )


def test_warnings_have_a_part_of_the_budget_that_nothing_else_takes() -> None:
    recent, found = Recent(), Service.of(inference_service())
    (usual,) = transitions({}, the(seen()))
    (warning,) = transitions({}, the(seen(), Refused(Reason.NameCollision, "Service ns/demo exists")))
    edits = [dataclasses.replace(found, generation=at) for at in range(2 * BURST)]
    assert sum(recent.is_new(edit, usual, 0.0) for edit in edits) == BURST - FOR_WARNINGS
    assert sum(recent.is_new(edit, warning, 0.0) for edit in edits) == FOR_WARNINGS


async def test_a_paused_service_says_what_its_plan_waits_for(world: World) -> None:
    await world.settle()
    await world.edit(graph={"decode": "Breakable"})
    paused = world.service
    paused["metadata"]["annotations"] = {PAUSED_ANNOTATION: "true"}
    world.cluster.put(Resource.InferenceService, paused)
    await world.relist()
    await world.reconcile()
    assert world.told("RolloutStarted") == []
    assert world.told("Planned")[-1].endswith("once the annotation graphpod.dev/paused is removed")


async def test_neither_a_look_nor_the_next_operator_repeats_an_event(world: World) -> None:
    await world.settle()
    reasons = [event["reason"] for event in world.cluster.events]
    assert reasons == ["Planned"]
    await world.edit(graph={"decode": "Breakable"})
    await world.reconcile()
    told = [event["reason"] for event in world.cluster.events]
    assert told == ["Planned", "RolloutStarted"]
    successor = world.successor()
    await successor.relist()
    await successor.reconcile()
    await successor.settle()
    assert [event["reason"] for event in world.cluster.events] == told


@pytest.mark.parametrize("revision", [7, ["x"], {"a": "b"}, "x" * 65])
def test_a_revision_that_no_operator_wrote_is_in_no_message(revision: Any) -> None:
    assert Service.of(inference_service(status={**stored(the(READY)), "revision": revision})).status == {}


def test_a_failure_is_one_warning_though_ready_and_stalled_repeat_it() -> None:
    refused = the(seen(), Refused(Reason.NameCollision, "Service ns/demo exists"))
    assert [(event.notice.value, event.reason) for event in transitions({}, refused)] == [("Warning", "NameCollision")]
