"""Events: each transition once, and few of a service that changes all the time."""

import dataclasses
from itertools import pairwise

from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.events.event import transitions
from graphpod_operator.events.recorder import Recent
from graphpod_operator.plan.refused import Refused
from tests.unit.operator.objects import inference_service
from tests.unit.operator.told import READY, seen, the


def test_an_event_tells_a_transition_once_and_only_where_it_has_a_notice() -> None:
    starting = the(seen())
    assert [event.reason for event in transitions({}, starting)] == []
    before = starting.model_dump(mode="json", by_alias=True, exclude_none=True)
    (event,) = transitions(before, the(READY))
    assert (event.notice.value, event.reason) == ("Normal", "Ready")
    after = the(READY).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert transitions(after, the(READY)) == ()

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


def test_a_failure_is_one_warning_though_ready_and_stalled_repeat_it() -> None:
    refused = the(seen(), Refused(Reason.NameCollision, "Service ns/demo exists"))
    assert [(event.notice.value, event.reason) for event in transitions({}, refused)] == [("Warning", "NameCollision")]
