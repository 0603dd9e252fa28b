"""status.graph: what is planned and what the pods run."""

import pytest

from tests.unit.operator.objects import planned, pod, rollout
from tests.unit.operator.told import HASH, READY, SERVING, UID, reading, seen, the, words


def test_the_weakest_pod_counts_and_pods_are_listed_when_they_differ() -> None:
    observed = seen(
        [pod("demo-abc-1", HASH, ready=True), pod("demo-abc-2", HASH, ready=True)],
        {UID: reading(), "uid-demo-abc-2": reading("demo-abc-2", decode="Breakable", captured=(20, 4))},
        rollout(2, 2, 2),
    )
    graph = the(observed, replicas=2).graph
    assert graph is not None
    assert (graph.decode.effective, graph.decode.display) == ("Breakable", "Breakable (recorder, planned Full)")
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
    assert (found.graph.captured, found.graph.prefill.display) == ("eager", "Disabled")
    assert found.graph.backend is None
    ready = next(row for row in found.conditions if row.type == "Ready")
    assert (ready.reason, ready.message) == ("Ready", "serves eagerly: both phases are Disabled")


@pytest.mark.parametrize("state", ["Loading", "Capturing", "SelfChecking"])
def test_both_phases_disabled_are_never_said_to_capture(state: str) -> None:
    spec = {"graph": {"prefill": "Disabled", "decode": "Disabled"}}
    plan = planned(**spec)
    told = reading(config_hash=plan.config_hash, state=state, prefill="Disabled", decode="Disabled", captured=(0, 0))
    said = words(the(seen([pod(config_hash=plan.config_hash)], {UID: told}, rollout(available=0)), **spec))
    assert said["GraphsCaptured"] == ("Unknown", "CapturePending")
    assert said["Ready"][0] == "False"


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
        ("NoCuda", "prefill, decode"),
        ("CaptureFailed", "decode"),
        ("CaptureFailed", "decode"),
    ]
    assert [row.because for row in graph.decisions[1:]] == ["of Full", "of Breakable"]


def test_a_rule_that_says_something_else_of_each_phase_is_a_decision_of_each() -> None:
    common = {"rule": "CaptureFailed", "stage": "Engine", "outcome": "Degraded", "hint": "h"}
    told = [
        {**common, "phase": "prefill", "because": "b"},
        {**common, "phase": "decode", "because": "another"},
        {**common, "phase": "decode", "because": "b", "outcome": "Adjusted"},
        {**common, "phase": "decode", "because": "c", "hint": "i"},
        {**common, "phase": "prefill", "because": "c"},
    ]
    graph = the(seen([pod(config_hash=HASH, ready=True)], {UID: reading(decisions=told)}, SERVING)).graph
    assert graph is not None
    assert [row.phase for row in graph.decisions[1:]] == ["prefill", "decode", "decode", "decode", "prefill"]


def test_a_spec_that_is_refused_shows_no_plan_and_its_rule_in_the_condition() -> None:
    spec = {
        "graph": {"prefill": "Breakable", "sizes": {"prefill": [5000]}, "onUnsupported": "Fail"},
        "engine": {"maxModelLen": 16, "maxBatch": 1},
    }
    told = the(seen(), **spec)
    assert told.graph is None
    accepted = next(row for row in told.conditions if row.type == "Accepted")
    assert (accepted.status, accepted.reason) == ("False", "PolicyRefused")
    assert "rule LadderEmpty" in accepted.message
