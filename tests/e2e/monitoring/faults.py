"""Each fault, the alert that it fires, and the alerts that follow: one table for the test and for its results."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field

import yaml

from monitoring.boards import BOARDS
from monitoring.boards.asking import Span, answer
from stubs.faults.fault import Answer, Freeze
from stubs.kubecall import WRITES, Verb, Which
from testbed.binaries.foreign import Foreign
from testbed.errors import TestbedError
from tests.api.operator.process import LEASES, serve
from tests.api.operator.test_bounds import DEEP, FIELDS, create, nested, written
from tests.api.operator.test_optional import stored_otherwise
from tests.crd import drop_crd
from tests.e2e.monitoring.stack import Stack
from tests.monitoring.actor import Load
from tests.monitoring.kubelet import Part
from tests.monitoring.scaled import SCRAPE_SECONDS
from tests.places import Place, service

TEAM = "team"
MONITORED = {"monitoring": {"enabled": True}}
HEALTHY = "healthy"
DRIFTING = 6


@dataclass(frozen=True)
class EngineFault:
    """What one service's engine does, the alert of that service, and which others of it follow."""

    service: str
    fault: str
    part: Part
    alert: str
    follow: tuple[str, ...] = ()


# fmt: off
ENGINE = (
    EngineFault("fallbacks", "a fifth of the decode passes is eager, in a mode for debugging",
                Part(load=Load(passes=32, eager=8, reason="ForcedEager")),
                "GraphpodReplayRatioLow", ("GraphpodFallbacksUnexpected",)),
    EngineFault("uncaptured", "one pass of forty meets a size that has no graph",
                Part(load=Load(passes=39, eager=1, reason="NotCaptured")), "GraphpodFallbacksUnexpected"),
    EngineFault("capture", "a size of decode cannot be captured",
                Part("capture:decode:4"), "GraphpodCaptureFailing", ("GraphpodPolicyDegraded",)),
    EngineFault("memory", "memory ends during each capture of decode: half the ladder, then a weaker policy",
                Part("oom:decode:1"), "GraphpodPolicyDegraded", ("GraphpodCaptureFailing",)),
    EngineFault("selfcheck", "a graph of decode gives another result than its code",
                Part("selfcheck:decode:4"), "GraphpodSelfCheckFailed", ("GraphpodPolicyDegraded",)),
    EngineFault("slow", "a capture makes no progress",
                Part("slow:decode:4:600s"), "GraphpodWarmupStuck"),
    EngineFault("recapture", "a graph is captured while requests wait",
                Part(load=Load(recaptures=0.5)), "GraphpodRecapture"),
    EngineFault("padding", "half of the rows are padding",
                Part(load=Load(real=100, padding=100)), "GraphpodPaddingWasteHigh"),
    EngineFault("queue", "three times as many requests wait as run",
                Part(load=Load(running=4, waiting=12)), "GraphpodQueueGrowing"),
    EngineFault("cache", "the KV cache is full and requests are set back",
                Part(load=Load(kv_usage=0.99, preemptions=2)),
                "GraphpodKVCacheSaturated", ("GraphpodPreemptionsHigh",)),
    EngineFault("preempted", "half of the requests are set back, and the cache has room in between",
                Part(load=Load(kv_usage=0.8, preemptions=2)), "GraphpodPreemptionsHigh"),
    EngineFault("masks", "a third of the time goes to the masks of grammars",
                Part(load=Load(masks=0.33)), "GraphpodMasksSlow"),
    EngineFault("drafts", "one draft of twenty is right",
                Part(load=Load(proposed=40, accepted=2)), "GraphpodDraftsWrong"),
    EngineFault("traces", "the collector takes half of the spans",
                Part(load=Load(exported=4, lost=4)), "GraphpodTracesLost"),
    EngineFault("nan", "logits are NaN", Part(load=Load(nonfinite=1)), "GraphpodNonfiniteLogits"),
    EngineFault("ttft", "first tokens take 1.5 s", Part(load=Load(ttft=1.5)), "GraphpodTTFTBudgetBurn",
                ("GraphpodTTFTBudgetBurnSlow",)),
    EngineFault("itl", "gaps between tokens are 0.1 s", Part(load=Load(itl=0.1)), "GraphpodITLBudgetBurn",
                ("GraphpodITLBudgetBurnSlow",)),
    EngineFault("errors", "a tenth of the requests ends in an error",
                Part(load=Load(reasons={"stop": 0.9, "error": 0.1})), "GraphpodErrorBudgetBurn",
                ("GraphpodErrorBudgetBurnSlow",)),
)
# fmt: on
PARTS = {HEALTHY: Part(), **{one.service: one.part for one in ENGINE}}
SLOW = (
    ("ttft", "GraphpodTTFTBudgetBurnSlow"),
    ("itl", "GraphpodITLBudgetBurnSlow"),
    ("errors", "GraphpodErrorBudgetBurnSlow"),
)
"""Services, and the alert over three days that must follow the one over hours."""
ENGINES_FOLLOW = ("GraphpodServiceNotReady",)
"""Of the operator, while a service among them is not Ready."""


@dataclass(frozen=True)
class OperatorFault:
    """What befalls the operator while `during` is open, the alert of it, and which others follow."""

    fault: str
    during: Callable[[Stack], AbstractContextManager[None]]
    alert: str
    follow: tuple[str, ...] = ()


@contextmanager
def _again_and_again(act: Callable[[int], object], every: float = 0.5) -> Iterator[None]:
    """`act` with 0, 1, 2, … until the block ends."""
    end = threading.Event()

    def run() -> None:
        number = 0
        while not end.wait(every):
            with suppress(TestbedError):  # what a fault refuses is tried again
                act(number)
            number += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(60)


def _edit(made: Stack) -> Callable[[int], object]:
    """A change of the healthy service's spec that its status follows, and its pods do not."""
    place = Place(made.cluster, TEAM)
    return lambda number: place.apply(HEALTHY, **MONITORED, updates=("Auto", "Pinned")[number % 2])


@contextmanager
def _down(made: Stack) -> Iterator[None]:
    assert made.operator.stop() == 0
    try:
        yield
    finally:
        made.operator.start()
        made.eventually(made.operator.idle, timeout=120)


@contextmanager
def _leaderless(made: Stack) -> Iterator[None]:
    """Somebody else holds the Lease for an hour and does not renew it."""
    assert made.operator.stop() == 0
    patch = '{"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}}'
    made.cluster.kubectl("patch", "lease", "graphpod-operator", "-n", LEASES, "--type=merge", "-p", patch)
    made.operator.start()
    # it is scraped again: that it was away for a moment is not the fault
    made.eventually(
        lambda: "GraphpodOperatorDown" not in {name for name, _ in made.firing()} and made.scraped(), timeout=120
    )
    try:
        yield
    finally:
        made.cluster.kubectl("delete", "lease", "graphpod-operator", "-n", LEASES)
        made.eventually(made.operator.idle, timeout=120)


@contextmanager
def _refused_status(made: Stack) -> Iterator[None]:
    statuses = Which(frozenset({Verb.PATCH}), resource="inferenceservices", subresource="status")
    with made.proxy.during(Answer(403), statuses), _again_and_again(_edit(made)):
        yield


@contextmanager
def _failing_writes(made: Stack) -> Iterator[None]:
    with made.proxy.during(Answer(500), Which(WRITES, namespace=TEAM)), _again_and_again(_edit(made)):
        yield


@contextmanager
def _no_resync(made: Stack) -> Iterator[None]:
    with made.proxy.during(Freeze(), Which(frozenset({Verb.LIST}))):
        yield


@contextmanager
def _frozen_write(made: Stack) -> Iterator[None]:
    with made.proxy.during(Freeze(), Which(WRITES, namespace=TEAM)):
        for number in range(2):  # one of both is a change
            _edit(made)(number)
        yield


@contextmanager
def _backlog(made: Stack) -> Iterator[None]:
    """More services than workers can look at, each held at its first write."""
    place = made.place("crowd")
    with made.proxy.during(Freeze(), Which(WRITES, namespace="crowd")):
        many = [service(f"one-{number}", {"namespace": "crowd"}) for number in range(130)]
        place.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(many), timeout=120)
        yield
        place.kubectl("delete", "gisvc", "--all", "--wait=false")
    place.delete()


@contextmanager
def _conflicts(made: Stack) -> Iterator[None]:
    refused = Which(frozenset({Verb.PATCH}), resource="services", namespace=TEAM)
    with _spoiled_services(made), made.proxy.during(Answer(409), refused):
        yield


@contextmanager
def _drift(made: Stack) -> Iterator[None]:
    with _spoiled_services(made):
        yield


@contextmanager
def _spoiled_services(made: Stack) -> Iterator[None]:
    """A label of a Service is changed each second, of each service in turn: the operator waits longer before it puts
    the same object back again.
    """
    place = Place(made.cluster, TEAM)
    for number in range(DRIFTING):
        place.apply(f"drift-{number}", suspend=True)
    made.eventually(lambda: len(place.names("services")) > DRIFTING, timeout=60)
    patch = '{"metadata": {"labels": {"app.kubernetes.io/part-of": "another"}}}'

    def spoil(number: int) -> None:
        place.kubectl("patch", "service", f"drift-{number % DRIFTING}", "--type=merge", "-p", patch)

    try:
        with _again_and_again(spoil, 1.0):
            yield
    finally:
        for number in range(DRIFTING):
            place.kubectl("delete", "gisvc", f"drift-{number}", "--wait=false")


@contextmanager
def _too_deep(made: Stack) -> Iterator[None]:
    place = Place(made.cluster, TEAM)
    create(place, written(service("deep", **FIELDS["volume"](None)), nested(DEEP)))
    try:
        yield
    finally:
        place.kubectl("delete", "gisvc", "deep")


@contextmanager
def _unlisted(made: Stack) -> Iterator[None]:
    """The API server cannot convert the objects of a third-party kind; the board has a panel that counts such kinds."""
    place, kind = Place(made.cluster, TEAM), Foreign.LeaderWorkerSet
    (board,) = (one for one in BOARDS if one.name == "operator")
    (panel,) = (one for one in board.panels() if one.title == "Optional kinds that cannot be listed")

    def counted() -> float:
        span = Span(time.time(), 60.0, SCRAPE_SECONDS)
        (series,) = answer(made.prometheus.url, board, panel, panel.queries[0], span)
        return series.latest

    assert counted() == 0
    serve(place, kind)
    try:
        with stored_otherwise(place, kind):
            yield
            assert counted() == 1
        made.eventually(lambda: counted() == 0, timeout=60)
    finally:
        drop_crd(made.cluster, kind.crd)


# fmt: off
OPERATOR = (
    OperatorFault("the operator is gone", _down, "GraphpodOperatorDown"),
    OperatorFault("another holds the Lease and does not renew it", _leaderless, "GraphpodNoLeader"),
    OperatorFault("the API server refuses every status with 403", _refused_status,
                  "GraphpodReconcileErrors", ("GraphpodOperatorStalled",)),
    OperatorFault("the API server answers every write of a namespace with 500", _failing_writes,
                  "GraphpodAPIErrors", ("GraphpodReconcileErrors", "GraphpodOperatorStalled")),
    OperatorFault("lists never end, so nothing is looked at", _no_resync, "GraphpodOperatorStalled"),
    OperatorFault("a write of one service never ends", _frozen_write,
                  "GraphpodReconcileStuck", ("GraphpodReconcileErrors", "GraphpodAPIErrors")),
    OperatorFault("130 services come and no write ends", _backlog,
                  "GraphpodQueueBacklog",
                  ("GraphpodReconcileStuck", "GraphpodServiceNotReady", "GraphpodOperatorStalled",
                   "GraphpodReconcileErrors", "GraphpodAPIErrors")),
    OperatorFault("another writer owns fields of Services", _conflicts,
                  "GraphpodApplyConflicts", ("GraphpodReconcileErrors", "GraphpodServiceNotReady")),
    OperatorFault("somebody changes Services again and again", _drift, "GraphpodDrift",
                  ("GraphpodServiceNotReady",)),
    OperatorFault("a service nests 1200 levels deep", _too_deep,
                  "GraphpodObjectSkipped", ("GraphpodServiceNotReady",)),
    OperatorFault("the conversion webhook of a third-party kind is down", _unlisted,
                  "GraphpodKindUnlisted", ("GraphpodAPIErrors",)),
)
# fmt: on


@dataclass
class Outcome:
    """What was seen of one fault."""

    fault: str
    alert: str
    expected: list[str]
    seen: list[str] = field(default_factory=list)
    seconds: float | None = None
    """Until the alert reached Alertmanager."""

    @property
    def holds(self) -> bool:
        """It fired, and nothing that is not listed."""
        return self.alert in self.seen and set(self.seen) <= {self.alert, *self.expected}
