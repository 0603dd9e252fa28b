"""The status, as a table: what is observed on the left, what is said on the right."""

import dataclasses
from itertools import pairwise
from typing import Any

import pytest

from graphpod_operator import observe
from graphpod_operator.api_status import Status
from graphpod_operator.events import Recent, transitions
from graphpod_operator.observe import Pod, Rollout
from graphpod_operator.plan import Desired, Refused, desire
from graphpod_operator.progress import Progress
from graphpod_operator.reasons import WHILE_ASKED, ConditionType, Reason
from graphpod_operator.status import Observed, status
from graphpod_operator.warmup import Missing, NoReading, Reading
from tests.unit.operator.objects import IMAGES, inference_service, plain_template, planned, pod, report, rollout

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:01:00Z"
HASH = planned().config_hash


def seen(
    pods: list[dict[str, Any]] | None = None,
    readings: dict[str, Reading | NoReading] | None = None,
    report_of: Rollout | None = None,
) -> Observed:
    return Observed(report_of, tuple(Pod.of(one) for one in pods or []), readings or {})


def reading(name: str = "demo-abc-1", **changes: Any) -> Reading:
    return Reading.model_validate(report(name, **{"config_hash": HASH, **changes}))


def the(
    observed: Observed, refused: Refused | None = None, before: dict[str, Any] | None = None, **spec: Any
) -> Status:
    found = observe.Service.of(inference_service(status=before, **spec))
    outcome = desire(found, IMAGES)
    if isinstance(outcome, Desired):  # a pod has the form of its spec, unless it is said to have another
        plain, form = plain_template(), outcome.template
        pods = (dataclasses.replace(one, template=form) if one.template == plain else one for one in observed.pods)
        observed = dataclasses.replace(observed, pods=tuple(pods))
    return status(found, outcome, refused, observed, NOW if before is None else LATER)


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

TABLE: list[tuple[str, Observed, dict[str, Any], tuple[tuple[str, str], ...]]] = [
    # name, observed, spec, (ModelAvailable, WorkloadAvailable, GraphsCaptured, Ready)
    (
        "nothing yet", seen(), {},
        (("Unknown", "ModelPending"), ("False", "Starting"), ("Unknown", "CapturePending"), ("False", "Starting")),
    ),
    (
        "loading", seen([pod(config_hash=HASH)], {UID: reading(state="Loading", captured=(0, 0))}, STARTING), {},
        (("False", "Loading"), ("False", "Starting"), ("Unknown", "CapturePending"), ("False", "Loading")),
    ),
    (
        "capturing", seen([pod(config_hash=HASH)], {UID: reading(state="Capturing", captured=(5, 0))}, STARTING), {},
        (("True", "Loaded"), ("False", "Starting"), ("False", "Capturing"), ("False", "Capturing")),
    ),
    (
        "checking itself", seen([pod(config_hash=HASH)], {UID: reading(state="SelfChecking")}, STARTING), {},
        (("True", "Loaded"), ("False", "Starting"), ("False", "SelfChecking"), ("False", "SelfChecking")),
    ),
    (
        "captured, not yet serving", seen([pod(config_hash=HASH)], {UID: reading()}, STARTING), {},
        (("True", "Loaded"), ("False", "Starting"), ("True", "Captured"), ("False", "Starting")),
    ),
    (
        "ready", READY, {},
        (("True", "Loaded"), ("True", "Available"), ("True", "Captured"), ("True", "Ready")),
    ),
    (
        "serving but unread", seen([pod(config_hash=HASH, ready=True)], {}, SERVING), {},
        (("True", "Loaded"), ("True", "Available"), ("Unknown", "CapturePending"), ("Unknown", "CapturePending")),
    ),
    (
        "just started, not listening",
        seen([pod(config_hash=HASH)], {UID: NoReading(Missing.Unreachable, "no answer", misses=2)}, STARTING), {},
        (("Unknown", "ModelPending"), ("False", "Starting"), ("Unknown", "CapturePending"), ("False", "Starting")),
    ),
    (
        "unreachable",
        seen([pod(config_hash=HASH)], {UID: NoReading(Missing.Unreachable, "no", misses=3)}, STARTING), {},
        (
            ("Unknown", "ModelPending"), ("False", "Starting"), ("Unknown", "EngineUnreachable"),
            ("False", "EngineUnreachable"),
        ),
    ),
    (
        "one of two proved",
        seen(
            [pod("demo-abc-1", HASH, ready=True), pod("demo-abc-2", HASH)],
            {UID: reading(), "uid-demo-abc-2": reading("demo-abc-2", state="Capturing")},
            rollout(2, 2, 1),
        ),
        {"replicas": 2},
        (("True", "Loaded"), ("False", "Starting"), ("False", "Capturing"), ("False", "Capturing")),
    ),
    (
        "the earlier configuration still serves",
        seen(
            [pod("demo-abc-1", "old", ready=True), pod("demo-abc-2", HASH)],
            {UID: reading(config_hash="old"), "uid-demo-abc-2": reading("demo-abc-2", state="Capturing")},
            rollout(2, 1, 1),
        ),
        {},
        (("True", "Loaded"), ("False", "Starting"), ("False", "PreviousServing"), ("False", "PreviousServing")),
    ),
    (
        "degraded", seen([pod(config_hash=HASH, ready=True)], {UID: reading(decode="Disabled")}, SERVING), {},
        (("True", "Loaded"), ("True", "Available"), ("True", "Degraded"), ("True", "Degraded")),
    ),
    (
        "suspended", seen([], {}, rollout(0, 0, 0)), {"suspend": True},
        (("Unknown", "ModelPending"), ("False", "Suspended"), ("Unknown", "CapturePending"), ("False", "Suspended")),
    ),
    (
        "stale rollout", seen([pod(config_hash=HASH, ready=True)], {UID: reading()}, rollout(observedGeneration=0)), {},
        (("True", "Loaded"), ("False", "Starting"), ("True", "Captured"), ("False", "Starting")),
    ),
    (
        "quota",
        seen([], {}, rollout(0, 0, 0, conditions=[{"type": "ReplicaFailure", "status": "True", "message": "quota"}])),
        {},
        (
            ("Unknown", "ModelPending"), ("False", "PodsRefused"), ("Unknown", "CapturePending"),
            ("False", "PodsRefused"),
        ),
    ),
    (
        "capture failed",
        seen(
            [pod(config_hash=HASH, engine={"state": {"terminated": {"exitCode": 12, "message": "CaptureFailed: x"}}})],
            {}, STARTING,
        ),
        {},
        (("True", "Loaded"), ("False", "Starting"), ("False", "StartDied"), ("False", "StartDied")),
    ),
    (
        "died and loads again",
        seen([pod(config_hash=HASH, engine=DIED)], {UID: reading(state="Loading", captured=(0, 0))}, STARTING), {},
        (("Unknown", "ModelPending"), ("False", "EngineDied"), ("Unknown", "CapturePending"), ("False", "EngineDied")),
    ),
    (
        "died and captures again",
        seen([pod(config_hash=HASH, engine=DIED)], {UID: reading(state="Capturing", captured=(5, 0))}, STARTING), {},
        (("True", "Loaded"), ("False", "Restarting"), ("False", "Capturing"), ("False", "Restarting")),
    ),
    (
        "died and is about to serve again",
        seen([pod(config_hash=HASH, engine=DIED)], {UID: reading()}, STARTING), {},
        (("True", "Loaded"), ("False", "Starting"), ("True", "Captured"), ("False", "Starting")),
    ),
    (
        "failed to capture and tries again",
        seen(
            [pod(config_hash=HASH, engine={"lastState": {"terminated": {"exitCode": 12}}})],
            {UID: reading(state="Capturing", captured=(5, 0))}, STARTING,
        ),
        {},
        (("True", "Loaded"), ("False", "Starting"), ("False", "StartDied"), ("False", "StartDied")),
    ),
    (
        "evicted, its successor serves",
        seen([pod("demo-abc-0", HASH, status=EVICTED), pod(config_hash=HASH, ready=True)], {UID: reading()}, SERVING),
        {},
        (("True", "Loaded"), ("True", "Available"), ("True", "Captured"), ("True", "Ready")),
    ),
    (
        "old pods' failures are not ours",
        seen([pod(config_hash="old", engine={"state": {"terminated": {"exitCode": 12}}})], {}, STARTING), {},
        (("Unknown", "ModelPending"), ("False", "Starting"), ("Unknown", "CapturePending"), ("False", "Starting")),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("observed", "spec", "said"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_what_is_observed_is_what_is_said(
    observed: Observed, spec: dict[str, Any], said: tuple[tuple[str, str], ...]
) -> None:
    found = words(the(observed, **spec))
    kinds = ("ModelAvailable", "WorkloadAvailable", "GraphsCaptured", "Ready")
    assert tuple(found[kind] for kind in kinds) == said
    assert found["Accepted"] == ("True", "Accepted")


def test_a_restart_names_the_failure_it_follows_and_keeps_it_as_the_last_one() -> None:
    observed = seen([pod(config_hash=HASH, restarts=1, engine=DIED)], {UID: reading(state="SelfChecking")}, STARTING)
    told = the(observed)
    message = next(condition.message for condition in told.conditions if condition.type == "Ready")
    assert message.startswith("pod demo-abc-1: start 2 after EngineDied: segmentation fault; see status.lastFailure")
    assert told.last_failure is not None
    assert (told.last_failure.reason, told.last_failure.exit_code) == ("EngineDied", 15)


def test_an_engine_that_dies_again_and_again_is_told_in_one_way_until_it_serves() -> None:
    """Nobody knows where it died, so that it got further this time tells nothing."""
    for state in ("Loading", "Capturing", "SelfChecking"):
        dying = pod(config_hash=HASH, restarts=2, engine=DIED)
        assert words(the(seen([dying], {UID: reading(state=state)}, STARTING)))["Ready"] == ("False", "EngineDied")
    assert words(the(seen([pod(config_hash=HASH, restarts=2, ready=True, engine=DIED)], {UID: reading()}, SERVING)))[
        "Ready"
    ] == ("True", "Ready")


def test_pods_that_ended_for_good_are_told_while_a_successor_is_missing() -> None:
    told = the(seen([pod(config_hash=HASH, status=EVICTED)], {}, rollout(0, 0, 0)))
    message = next(condition.message for condition in told.conditions if condition.type == "Ready")
    assert message == (
        "0 of 1 pods of this spec serve; pod demo-abc-1 ended for good: Evicted: the node was low on memory"
    )
    assert told.last_failure is None


def test_a_pod_of_an_earlier_spec_is_not_counted_for_this_one() -> None:
    observed = seen([pod("demo-old-1", "earlier", ready=True), pod("demo-abc-1", HASH)], {}, rollout(2, 1, 1))
    message = next(row.message for row in the(observed, replicas=2).conditions if row.type == "WorkloadAvailable")
    assert message.startswith("0 of 2 pods of this spec serve")


def test_a_pod_of_another_form_is_not_counted_though_its_configuration_is_the_same() -> None:
    """The next image cannot be pulled: that of before serves on, and proves nothing of the next."""
    before = pod("demo-abc-1", HASH, template="of another image", ready=True)
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    made = the(
        seen([before, pod("demo-def-1", HASH, running=False, engine=waiting)], {UID: reading()}, rollout(2, 1, 1)),
        replicas=2,
    )
    told = words(made)
    assert told["ModelAvailable"] == ("Unknown", "ModelPending")
    assert told["GraphsCaptured"][0] != "True"
    assert told["Ready"] == ("False", "ImagePullFailed")
    assert told["Available"] == ("True", "Serving")


def test_ready_needs_a_terminal_reading_of_the_planned_configuration_from_every_serving_pod() -> None:
    proved = pod("demo-abc-1", HASH, ready=True)
    others: list[Reading | NoReading | None] = [
        None,
        NoReading(Missing.Mismatch, "other pod"),
        reading("demo-abc-2", state="SelfChecking"),
    ]
    for other in others:
        readings: dict[str, Reading | NoReading] = {UID: reading()}
        if other is not None:
            readings["uid-demo-abc-2"] = other
        observed = seen([proved, pod("demo-abc-2", HASH, ready=True)], readings, rollout(2, 2, 2))
        assert words(the(observed, replicas=2))["Ready"][0] != "True"


def test_reconciling_and_stalled_are_present_only_while_true() -> None:
    assert "Reconciling" in words(the(seen()))
    assert not {"Reconciling", "Stalled"} & set(words(the(READY)))
    assert not {"Reconciling", "Stalled"} & set(words(the(seen(), suspend=True)))
    stalled = words(the(seen(), Refused(Reason.NameCollision, "Service ns/demo exists")))
    assert stalled["Stalled"] == ("True", "NameCollision")
    assert "Reconciling" not in stalled


def kstatus(of: Status, generation: int) -> str:
    """What Flux and Helm 4 make of it; source: `pkg/kstatus/status/generic.go` of sigs.k8s.io/cli-utils."""
    told = {condition.type: condition.status.value for condition in of.conditions}
    if of.observed_generation != generation or told.get("Reconciling") == "True":
        return "InProgress"
    if told.get("Stalled") == "True":
        return "Failed"
    return "Current" if told["Ready"] == "True" else "InProgress"


def test_tools_that_know_kstatus_read_us_without_a_plug_in() -> None:
    assert kstatus(the(seen()), 1) == "InProgress"
    assert kstatus(the(READY), 1) == "Current"
    assert kstatus(the(READY), 2) == "InProgress"
    assert kstatus(the(seen(), Refused(Reason.NameCollision, "Service ns/demo exists")), 1) == "Failed"
    assert kstatus(the(seen(), engine={"deterministic": True}), 1) == "Failed"


@pytest.mark.parametrize(
    ("observed", "spec", "phase"),
    [
        (seen(), {}, "Starting"),
        (READY, {}, "Ready"),
        (seen([pod(config_hash=HASH, ready=True)], {UID: reading(prefill="Disabled")}, SERVING), {}, "Degraded"),
        (seen(), {"suspend": True}, "Suspended"),
        (seen(), {"engine": {"deterministic": True}}, "Refused"),
        (
            seen([pod(config_hash=HASH, engine={"lastState": {"terminated": {"exitCode": 11}}})], {}, STARTING),
            {},
            "Stalled",
        ),
    ],
)
def test_the_phase_is_one_word_made_from_the_conditions(observed: Observed, spec: dict[str, Any], phase: str) -> None:
    assert the(observed, **spec).phase == phase


def test_every_condition_is_always_told_but_those_that_are_present_only_while_true() -> None:
    for observed in (seen(), READY):
        untold = set(ConditionType) - set(words(the(observed)))
        assert untold <= {ConditionType.Reconciling, ConditionType.Stalled, *WHILE_ASKED}


def placed(name: str = "demo-abc-1", **changes: Any) -> dict[str, Any]:
    """A pod of the planned configuration, on a node."""
    return {**pod(name, config_hash=HASH, **changes), "spec": {"nodeName": "n"}}


def gated(*gates: str) -> dict[str, Any]:
    """A pod that the scheduler may not look at."""
    blocked = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "blocked"}
    waits = pod(config_hash=HASH, running=False, status={"conditions": [blocked]})
    return {**waits, "spec": {"schedulingGates": [{"name": gate} for gate in gates]}}


NO_ROOM = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes: 3 Insufficient cpu."}]}
NO_CLAIM = {
    "conditions": [{"type": "PodScheduled", "status": "False", "message": 'persistentvolumeclaim "w" not found'}]
}


@pytest.mark.parametrize(
    ("pods", "spec", "said"),
    [
        ([], {}, ("Unknown", "PodsPending")),
        ([pod(config_hash=HASH)], {}, ("Unknown", "PodsPending")),
        ([placed()], {}, ("True", "Scheduled")),
        ([placed()], {"replicas": 2}, ("Unknown", "PodsPending")),
        ([placed(), placed("demo-abc-2")], {"replicas": 2}, ("True", "Scheduled")),
        ([pod(config_hash=HASH, running=False, status=NO_ROOM)], {}, ("False", "Unschedulable")),
        ([pod(config_hash=HASH, running=False, status=NO_CLAIM)], {}, ("False", "ClaimNotFound")),
        ([gated("kueue.x-k8s.io/admission")], {}, ("False", "QueuedByKueue")),
        ([gated("example.com/wait")], {}, ("False", "SchedulingGated")),
        ([placed("demo-old-1") | {"metadata": pod("demo-old-1")["metadata"]}], {}, ("Unknown", "PodsPending")),
        ([], {"suspend": True}, ("False", "Suspended")),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_scheduled_says_whether_every_pod_of_the_spec_has_a_node(
    pods: list[dict[str, Any]], spec: dict[str, Any], said: tuple[str, str]
) -> None:
    told = words(the(seen(pods), **spec))
    assert told["Scheduled"] == said
    if said[0] == "False":
        assert "Stalled" not in told or said[1] == "ClaimNotFound", "room may come"


def test_a_pod_that_waits_for_a_node_is_told_whatever_else_fails() -> None:
    crashed = pod("demo-abc-2", config_hash=HASH, running=False, engine=DIED)
    told = words(the(seen([pod(config_hash=HASH, running=False, status=NO_ROOM), crashed]), replicas=2))
    assert told["Scheduled"] == ("False", "Unschedulable")
    assert told["WorkloadAvailable"] == ("False", "EngineDied")


OLD = pod("demo-old-1", config_hash="old", ready=True)


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        (seen(), ("False", "NothingServes")),
        (READY, ("True", "Serving")),
        (seen([OLD], {"uid-demo-old-1": reading("demo-old-1", config_hash="old")}, STARTING), ("True", "Serving")),
        (seen([OLD], {}, STARTING), ("Unknown", "Unproved")),
        (seen([OLD], {"uid-demo-old-1": NoReading(Missing.Unreachable, "x")}, STARTING), ("Unknown", "Unproved")),
        (seen([pod(config_hash=HASH)], {UID: reading()}, STARTING), ("False", "NothingServes")),
    ],
    ids=["nothing", "ready", "an earlier generation", "silent", "unreachable", "not ready"],
)
def test_available_says_whether_a_proved_pod_of_any_generation_serves(
    observed: Observed, said: tuple[str, str]
) -> None:
    assert words(the(observed))["Available"] == said


def test_a_refused_spec_leaves_available_to_the_pods_that_serve() -> None:
    told = words(the(READY, engine={"deterministic": True}))
    assert told["Available"] == ("True", "Serving")
    assert told["Degraded"] == told["Scheduled"] == ("Unknown", "NotAccepted")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reading(), ("False", "AsPlanned")),
        (reading(decode="Disabled"), ("True", "Degraded")),
        (reading(decode="Disabled", state="Capturing"), ("False", "AsPlanned")),
    ],
    ids=["as planned", "weaker", "not at its end"],
)
def test_degraded_says_whether_a_pod_runs_less_than_planned(answer: Reading, said: tuple[str, str]) -> None:
    for ready in (True, False):
        told = words(the(seen([pod(config_hash=HASH, ready=ready)], {UID: answer}, STARTING)))
        assert told["Degraded"] == said


def test_a_refused_spec_says_so_everywhere_and_tells_what_still_serves() -> None:
    observed = seen([pod(config_hash="old", ready=True)], {}, SERVING)
    told = the(observed, engine={"deterministic": True})
    assert words(told)["Accepted"] == ("False", "FeatureNotBuilt")
    assert words(told)["Ready"] == ("False", "FeatureNotBuilt")
    assert words(told)["GraphsCaptured"] == ("Unknown", "NotAccepted")
    assert "pods that serve all the same: 1" in told.conditions[1].message


def test_the_time_of_a_condition_moves_only_with_its_status() -> None:
    before = the(seen()).model_dump(mode="json", by_alias=True, exclude_none=True)
    times = {condition.type: condition.last_transition_time for condition in the(READY, before=before).conditions}
    assert times == {
        "Accepted": NOW,
        "ModelAvailable": LATER,
        "WorkloadAvailable": LATER,
        "GraphsCaptured": LATER,
        "Ready": LATER,
        "Scheduled": NOW,
        "Available": LATER,
        "Degraded": NOW,
        "PolicyUpdateAvailable": NOW,
        "EngineUpdateAvailable": NOW,
    }


def test_the_same_observation_gives_the_same_status_later() -> None:
    before = the(READY).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert the(READY, before=before).model_dump(mode="json", by_alias=True, exclude_none=True) == before


def test_the_weakest_pod_counts_and_pods_are_listed_when_they_differ() -> None:
    observed = seen(
        [pod("demo-abc-1", HASH, ready=True), pod("demo-abc-2", HASH, ready=True)],
        {UID: reading(), "uid-demo-abc-2": reading("demo-abc-2", decode="Breakable", captured=(20, 4))},
        rollout(2, 2, 2),
    )
    graph = the(observed, replicas=2).graph
    assert graph is not None
    assert (graph.decode.effective, graph.decode.display) == ("Breakable", "Breakable (recorder)")
    assert graph.captured == "24/26"
    assert [(row.name, row.decode) for row in graph.pods] == [("demo-abc-1", "Full"), ("demo-abc-2", "Breakable")]
    same = the(READY).graph
    assert same is not None
    assert same.pods is None


def test_both_phases_disabled_need_no_capture() -> None:
    spec = {"graph": {"prefill": "Disabled", "decode": "Disabled"}}
    plan = planned(**spec)
    told = reading(config_hash=plan.config_hash, prefill="Disabled", decode="Disabled", captured=(0, 0))
    observed = seen([pod(config_hash=plan.config_hash, ready=True)], {UID: told}, SERVING)
    found = the(observed, **spec)
    assert words(found)["GraphsCaptured"] == ("True", "NotRequired")
    assert found.graph is not None
    assert (found.graph.captured, found.graph.prefill.display) == ("0/0", "Disabled")


def test_the_engines_decisions_join_the_operators_once_each() -> None:
    decision = {"phase": "decode", "stage": "Engine", "outcome": "Degraded", "because": "b", "hint": "h"}
    (known,) = (row for row in planned().policy.decisions if (row.rule, row.phase) == ("NoCuda", "decode"))
    same = {**known.as_dict(), "stage": "Engine"}
    first, second = (
        {**decision, "rule": "CaptureFailed", "because": because} for because in ("of Full", "of Breakable")
    )
    told = reading(decisions=[first, same, second, first])
    graph = the(seen([pod(config_hash=HASH, ready=True)], {UID: told}, SERVING)).graph
    assert graph is not None
    assert [(row.rule, row.phase) for row in graph.decisions] == [
        ("NoCuda", "prefill"),
        ("NoCuda", "decode"),
        ("CaptureFailed", "decode"),
        ("CaptureFailed", "decode"),
    ]
    assert [row.because for row in graph.decisions[2:]] == ["of Full", "of Breakable"]


def test_a_refused_plan_shows_the_decision_that_refused_it() -> None:
    spec = {
        "graph": {"prefill": "Breakable", "sizes": {"prefill": [5000]}, "onUnsupported": "Fail"},
        "engine": {"maxModelLen": 16, "maxBatch": 1},
    }
    graph = the(seen(), **spec).graph
    assert graph is not None
    assert "LadderEmpty" in {decision.rule for decision in graph.decisions}
    assert graph.config_hash is None


def test_an_event_tells_a_transition_once_and_only_where_it_has_a_notice() -> None:
    starting = the(seen())
    assert [event.reason for event in transitions({}, starting)] == []
    before = starting.model_dump(mode="json", by_alias=True, exclude_none=True)
    (event,) = transitions(before, the(READY))
    assert (event.notice.value, event.reason) == ("Normal", "Ready")
    after = the(READY).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert transitions(after, the(READY)) == ()

    recent, found = Recent(), observe.Service.of(inference_service())
    assert recent.is_new(found, event, 0.0)
    assert not recent.is_new(found, dataclasses.replace(event, message="of another pod"), 599.0)
    assert recent.is_new(dataclasses.replace(found, uid="other"), event, 599.0)
    assert recent.is_new(dataclasses.replace(found, generation=2), event, 599.0)
    assert recent.is_new(found, event, 601.0)


def test_a_service_that_changes_all_the_time_is_told_of_a_few_times_and_then_once_in_five_minutes() -> None:
    """Each edit is a generation of its own, so the same reason is news each time; the API server's events are not."""
    recent, found = Recent(), observe.Service.of(inference_service())
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


def capturing(prefill: int) -> dict[str, Any]:
    observed = seen([pod(config_hash=HASH)], {UID: reading(state="Capturing", captured=(prefill, 0))}, STARTING)
    return the(observed).model_dump(mode="json", by_alias=True, exclude_none=True)


def test_captures_are_written_every_third_or_minute_details_every_five_seconds_and_conditions_at_once() -> None:
    progress, key = Progress(), observe.Key("ns", "demo")
    assert progress.wait(key, {}, capturing(1), 0.0) == 0
    progress.written(key, 0.0)
    assert progress.wait(key, capturing(1), capturing(1), 100.0) is None
    assert progress.wait(key, capturing(1), capturing(2), 10.0) == 50, "one size more waits for a minute"
    assert progress.wait(key, capturing(1), capturing(10), 4.0) == 1, "a step of 9/26 waits for 5 s"
    assert progress.wait(key, capturing(1), {**capturing(1), "replicas": 7}, 4.0) == 1, "a detail waits for 5 s"
    assert progress.wait(key, capturing(1), capturing(10), 5.0) == 0
    done = the(READY).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert progress.wait(key, capturing(9), done, 0.1) == 0, "a condition waits for nothing"


def test_the_status_names_the_selector_and_the_address() -> None:
    told = the(seen())
    assert told.selector == "app.kubernetes.io/name=graphpod-engine,app.kubernetes.io/instance=demo"
    assert told.url == "http://demo.ns.svc/v1"
