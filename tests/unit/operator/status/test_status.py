"""The status, as a table: what is observed on the left, what is said on the right."""

import dataclasses
from typing import Any

import pytest

from graphpod_operator.api.status import Status
from graphpod_operator.cache.child import DeploymentRollout
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import MEANING, ConditionType
from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.observe.warmup_report import NoReading, Reading
from graphpod_operator.plan.refused import Refused
from graphpod_operator.telemetry.label_values import Missing
from tests.unit.operator.objects import planned, pod, rollout
from tests.unit.operator.told import (
    DIED,
    EVICTED,
    HASH,
    LATER,
    NOW,
    READY,
    SERVING,
    STARTING,
    UID,
    reading,
    seen,
    the,
    words,
)

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
        "the Deployment counts a pod that was not heard of yet",
        seen([pod("demo-abc-1", HASH, ready=True)], {UID: reading()}, rollout(2, 2, 2)), {"replicas": 2},
        (("True", "Loaded"), ("False", "Starting"), ("True", "Captured"), ("False", "Starting")),
    ),
    (
        "the Deployment counts a pod as available that was not heard of as ready yet",
        seen([pod("demo-abc-1", HASH, ready=True), pod("demo-abc-2", HASH)], {UID: reading()}, rollout(2, 2, 2)),
        {"replicas": 2},
        (("True", "Loaded"), ("False", "Starting"), ("True", "Captured"), ("False", "Starting")),
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
    assert message.startswith(
        "pod demo-abc-1: start 2 after EngineDied: segmentation fault; for the failure: kubectl -n ns logs"
    )
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
        "0 of 1 pods of this spec serve; pod demo-abc-1 failed permanently: Evicted: the node was low on memory"
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


def test_every_condition_is_always_told_but_those_whose_meaning_says_present_only_while() -> None:
    for observed in (seen(), READY):
        untold = set(ConditionType) - set(words(the(observed)))
        assert untold <= {one for one, meaning in MEANING.items() if meaning.startswith("Present only while ")}


def test_the_verdict_comes_first_and_what_it_is_made_of_next() -> None:
    """`kubectl describe` prints conditions in the order in which they are written."""
    for told in (the(seen()), the(READY), the(seen(), engine={"deterministic": True})):
        types = [row.type for row in told.conditions]
        assert types[0] == "Ready"
        assert types == sorted(types, key=list(ConditionType).index)
    assert types[1] == "Stalled"


def test_a_refused_spec_says_so_everywhere_and_tells_what_still_serves() -> None:
    observed = seen([pod(config_hash="old", ready=True)], {}, SERVING)
    told = the(observed, engine={"deterministic": True})
    assert words(told)["Accepted"] == ("False", "FeatureNotBuilt")
    assert words(told)["Ready"] == ("False", "FeatureNotBuilt")
    assert words(told)["GraphsCaptured"] == ("Unknown", "NotAccepted")
    assert "earlier pods keep serving (1/1)" in told.conditions[0].message


def test_a_refused_edit_keeps_showing_the_policies_graphs_and_replicas_of_the_pods_that_serve() -> None:
    told = the(READY, runs=planned(), graph={"prefill": "Full"})
    assert words(told)["Ready"] == ("False", "FeatureNotBuilt")
    assert words(told)["Available"] == ("True", "Serving")
    for kind in ("Ready", "Stalled"):
        message = next(row.message for row in told.conditions if row.type == kind)
        assert message.endswith("; earlier pods keep serving (1/1)")
    before = the(READY)
    assert (told.pods, told.engine, told.revision) == ("1/1", before.engine, before.revision)
    assert told.graph == before.graph
    assert before.graph is not None
    assert (before.graph.captured, before.graph.config_hash) == ("26/26", HASH)


def test_an_edit_that_the_api_server_refuses_keeps_showing_the_pods_that_serve() -> None:
    stop = Refused(Reason.ApplyRefused, "the API server refuses the Deployment")
    told = the(READY, stop, runs=planned(), engine={"maxBatch": 2})
    assert next(row.message for row in told.conditions if row.type == "Ready").endswith("keep serving (1/1)")
    assert told.graph is not None
    assert (told.pods, told.graph.captured, told.graph.decode.effective) == ("1/1", "26/26", "Full")


@pytest.mark.parametrize(
    ("started", "ready", "reason"),
    [
        ("2025-12-31T23:59:31Z", False, "CapturePending"),
        ("2025-12-31T23:59:30Z", False, "EngineUnreachable"),
        ("2025-12-31T23:59:31Z", True, "EngineUnreachable"),
    ],
)
def test_a_silent_admin_port_is_no_sign_of_a_closed_network_while_the_container_is_young(
    started: str, ready: bool, reason: str
) -> None:
    young = pod(config_hash=HASH, ready=ready, engine={"state": {"running": {"startedAt": started}}})
    silent = NoReading(Missing.Unreachable, "pod demo-abc-1: no answer", misses=9, seconds=20)
    assert words(the(seen([young], {UID: silent}, STARTING)))["GraphsCaptured"] == ("Unknown", reason)


def test_the_note_about_earlier_pods_survives_a_long_message() -> None:
    told = the(READY, Refused(Reason.ApplyRefused, "long " * 100))
    message = next(row.message for row in told.conditions if row.type == "Ready")
    assert len(message) <= 256
    assert message.endswith("earlier pods keep serving (1/1)")


def test_the_columns_show_the_plan_until_a_warm_up_ended_and_nothing_for_a_refused_new_service() -> None:
    graph = the(seen()).graph
    assert graph is not None
    assert (graph.prefill.display, graph.decode.display) == ("Breakable (planned)", "Full (planned)")
    refused = the(seen(), graph={"prefill": "Full"})
    assert (refused.graph, refused.pods, refused.revision) == (None, None, None)


def test_a_refused_spec_without_a_workload_has_no_replicas() -> None:
    told = the(seen([], {}, None), engine={"deterministic": True})
    assert (told.replicas, told.updated_replicas, told.ready_replicas) == (0, 0, 0)


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


def test_the_status_names_the_selector() -> None:
    assert the(seen()).selector == "app.kubernetes.io/name=graphpod-engine,app.kubernetes.io/instance=demo"


@pytest.mark.parametrize(
    ("report", "spec", "url"),
    [
        (SERVING, {}, "http://demo.ns.svc/v1"),
        (SERVING, {"engine": {"tlsSecretRef": "cert"}}, "https://demo.ns.svc/v1"),
        (STARTING, {}, "http://demo.ns.svc/v1"),
        (SERVING, {"role": "Decode"}, "http://demo.ns.svc/v1"),
        (dataclasses.replace(SERVING, asked=0), {"suspend": True}, "http://demo.ns.svc/v1"),
        (dataclasses.replace(SERVING, asked=0, replicas=0), {"suspend": True}, None),
        (None, {}, None),
        (None, {"role": "Decode"}, None),
    ],
    ids=["serves", "tls", "starts", "refused, and runs on", "drains", "suspended", "no workload", "never accepted"],
)
def test_the_status_has_an_address_while_pods_are_or_are_to_be_behind_it(
    report: DeploymentRollout | None, spec: dict[str, Any], url: str | None
) -> None:
    assert the(seen(report_of=report), **spec).url == url
