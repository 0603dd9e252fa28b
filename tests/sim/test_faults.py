"""Engines that go wrong: the condition, the reason and the next step that a user reads.

All services of the table start together; each test waits for its own.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.places import service
from tests.sim.conftest import SimPlace, annotations
from tests.sim.history import History

FAIL = {"graph": {"onCaptureFailure": "Fail"}}
RANKS = {"parallelism": {"tensor": 2}}


@dataclass(frozen=True)
class Case:
    """A service, what its engine does, and what is said of it in the end."""

    name: str
    fault: str
    condition: str
    status: str
    reason: str
    words: str
    spec: dict[str, Any] = field(default_factory=dict)


FAILING = (
    Case("load", "load", "ModelAvailable", "False", "ModelInvalid", "correct spec.model.uri"),
    Case("capture", "capture:decode:2", "GraphsCaptured", "False", "CaptureFailed", "decode size 2", FAIL),
    Case("oom", "oom:decode:4:fatal", "GraphsCaptured", "False", "CaptureOutOfMemory", "shorten spec.graph", FAIL),
    Case("selfcheck", "selfcheck:prefill:64", "GraphsCaptured", "False", "SelfCheckFailed", "report the failure", FAIL),
    Case("killed", "killed:Capturing", "WorkloadAvailable", "False", "OutOfMemory", "spec.resources.limits.memory"),
    Case("dead", "dead:Loading", "WorkloadAvailable", "False", "EngineDied", "--previous; if GPU memory ran out"),
    Case("stuck", "stuck:Loading:1s", "WorkloadAvailable", "False", "EngineStuck", "no progress at Loading"),
    Case("rank-dead", "dead:Loading", "WorkloadAvailable", "False", "RankDied", "rank 1 of 2 has ended", RANKS),
    Case("rank-stuck", "stuck:Loading:1s", "WorkloadAvailable", "False", "RankStuck", "check its GPUs for Xid", RANKS),
    Case("setting", "nonsense", "WorkloadAvailable", "False", "SettingInvalid", "'nonsense' is not one of slow, oom"),
    Case(
        "image", "", "WorkloadAvailable", "False", "ImagePullFailed", "correct spec.engine.image",
        {"engine": {"image": "registry.invalid/engine:1"}},
    ),
    Case(
        "cpu", "", "WorkloadAvailable", "False", "Unschedulable", "Insufficient cpu",
        {"resources": {"requests": {"cpu": "9999"}}},
    ),
    Case(
        "claim", "", "ModelAvailable", "False", "ClaimNotFound", "create the PersistentVolumeClaim",
        {"model": {"uri": "pvc://none/model"}},
    ),
)  # fmt: skip
UNPROVEN = (
    Case("silent", "silent:Loading", "GraphsCaptured", "Unknown", "EngineUnreachable", "no answer within"),
    Case("mute", "silent:warmup", "GraphsCaptured", "Unknown", "EngineUnreachable", "NetworkPolicy"),
    Case("hash", "lying:hash", "GraphsCaptured", "Unknown", "EngineMisreports", "0000000000"),
    Case("uid", "lying:uid", "GraphsCaptured", "Unknown", "EngineMisreports", "another-pod"),
    Case("early", "lying:ready", "GraphsCaptured", "False", "Capturing", "graphs captured"),
    Case("huge", "answer:huge", "GraphsCaptured", "Unknown", "EngineUnreachable", "more than 65536 bytes"),
    Case("malformed", "answer:malformed", "GraphsCaptured", "Unknown", "EngineMisreports", "without a warm-up report"),
    Case("error", "answer:error", "GraphsCaptured", "Unknown", "EngineUnreachable", "answered 500"),
    Case("redirect", "answer:redirect", "GraphsCaptured", "Unknown", "EngineUnreachable", "answered 302"),
)
WEAKER = (
    Case("degraded", "capture:decode:2", "Ready", "True", "Degraded", "decode runs Disabled instead of Full"),
    Case("shorter", "oom:decode:4", "Ready", "True", "Ready", "serves on proved graphs"),
    Case("slow", "slow:prefill:64:2s", "Ready", "True", "Ready", "serves on proved graphs"),
)


@pytest.fixture(scope="module")
def troubled(open_place: Callable[[], SimPlace]) -> Iterator[tuple[SimPlace, History]]:
    """Every service of the table, applied at once, and all that was ever said of them."""
    place = open_place()
    services = [
        service(case.name, podTemplate=annotations(case.fault), **case.spec) for case in (*FAILING, *UNPROVEN, *WEAKER)
    ]
    with History.of(place) as history:
        place.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": services}))
        yield place, history


def _ids(case: Case) -> str:
    return case.name


def told(place: SimPlace, case: Case) -> Callable[[], bool]:
    """A check for `eventually`: the condition has its reason and says its words, which may follow: an engine that the
    fleet does not know yet is unreachable by other words first.
    """

    def check() -> bool:
        message = place.reached(case.condition, case.status, case.reason, case.name)()
        assert case.words in message, message
        return True

    return check


@pytest.mark.parametrize("case", FAILING, ids=_ids)
def test_an_engine_that_fails_is_told_by_condition_reason_and_next_step(case: Case, troubled, eventually) -> None:
    place, _ = troubled
    eventually(told(place, case))
    # one that died amid its captures is Restarting for a moment, when its second run has got there
    eventually(place.reached("Ready", "False", case.reason, case.name))
    assert place.status(case.name)["lastFailure"]["reason"] == case.reason


@pytest.mark.parametrize("case", UNPROVEN, ids=_ids)
def test_an_engine_whose_word_does_not_count_never_makes_the_service_ready(case: Case, troubled, eventually) -> None:
    place, history = troubled
    eventually(told(place, case), timeout=60)  # a pod's engine has 30 s until it counts as unreachable
    rows = history.conditions(case.name)
    assert rows, "the watch saw the service"
    assert not [row for row in rows if row.get("Ready") == "True" or row.get("GraphsCaptured") == "True"]


@pytest.mark.parametrize("case", WEAKER, ids=_ids)
def test_an_engine_that_runs_less_than_planned_is_ready_and_says_what(case: Case, troubled, eventually) -> None:
    place, _ = troubled
    eventually(told(place, case))
