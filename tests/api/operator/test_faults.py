"""The operator behind a faulty wire: whatever fails on the way, in the end things are as if nothing had."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from graphpod_operator.kube.resources import WATCHED, Resource
from stubs.faults.fault import Answer, Cut, Effect, Freeze, Slow, Turn, WatchError
from stubs.kubecall import WRITES, Verb, Which
from stubs.proxy import Proxy
from tests.api.operator.pods import AdminPorts
from tests.api.operator.process import USER, Operator
from tests.audit import Audit
from tests.places import Place

KINDS = ("serviceaccount", "configmap", "service", "controllerrevision", "deployment")
pytestmark = pytest.mark.chaos
CREATE_TO_READY = len(KINDS) + 8
"""Writes that a service may cost from its creation on (contract 9)."""
LOST_WATCH_LIMIT = 120.0
"""Seconds after which a watch that tells nothing has been replaced: it is waited 70 for a sign of life."""
LATE_SECONDS = 4.0
WATCHES = frozenset({Verb.WATCH})
READS = frozenset({Verb.GET, Verb.LIST})


@dataclass(frozen=True)
class Wire:
    """An operator, and the proxy through which alone it sees its API server."""

    proxy: Proxy
    operator: Operator


@pytest.fixture(scope="module")
def far_operator(
    running_operator: Operator,
    hasty_operator: Operator,
    admin_ports: AdminPorts,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Wire]:
    """Instead of the folder's operator, which would do the work otherwise."""
    running_operator.pause()
    hasty_operator.pause()
    folder = tmp_path_factory.mktemp("faults")
    cluster = running_operator.cluster
    with Proxy(cluster.kubeconfig).serving() as proxy:
        kubeconfig = proxy.kubeconfig(cluster.token_kubeconfig(USER), folder / "kubeconfig")
        operator = Operator(cluster, admin_ports.url, folder / "log", kubeconfig=kubeconfig)
        operator.start()
        try:
            yield Wire(proxy, operator)
        finally:
            proxy.board.clear()
            operator.stop()


@pytest.fixture
def wire(far_operator: Wire, eventually) -> Iterator[Wire]:
    eventually.evidence += [far_operator.operator.tail, lambda: str(far_operator.proxy.counts())]
    eventually(far_operator.operator.idle)
    yield far_operator
    far_operator.proxy.board.clear()


def in_place(place: Place, verbs: frozenset[Verb] = WRITES, **more: Any) -> Which:
    """Requests about one test's namespace."""
    return Which(verbs, namespace=place.namespace, **more)


def in_order(place: Place) -> Callable[[], bool]:
    """A check: each child is there once, and status has seen its pod."""

    def check() -> bool:
        place.reached("WorkloadAvailable", "False", "Starting")()
        children = sorted(name.partition(".")[0].partition("/")[0] for name in place.names(",".join(KINDS)))
        assert children == sorted(KINDS), children
        return len(place.pods()) == 1

    return check


@pytest.mark.parametrize(
    ("effect", "verbs", "turn"),
    [
        pytest.param(Answer(429, retry_after=1), WRITES, Turn(first=2, times=1), id="429"),
        pytest.param(Answer(409), WRITES, Turn(times=1), id="409"),
        pytest.param(Cut(after_bytes=30), WRITES, Turn(first=2, times=1), id="cut"),
        pytest.param(Answer(500), WRITES, Turn(times=3), id="500"),
        pytest.param(Answer(503, retry_after=1), WRITES, Turn(first=3, times=1), id="503"),
        pytest.param(Answer(500), READS, Turn(times=2), id="500-reads"),
        pytest.param(Cut(), READS, Turn(times=1), id="cut-reads"),
        pytest.param(Slow(delay=0.3), WRITES | READS, Turn(), id="slow"),
        pytest.param(
            Answer(500),
            WRITES | READS,
            Turn(probability=0.3, seed=7, times=4),
            id="500-by-chance",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_create_through_failing_requests_ends_in_order(
    wire: Wire, place: Place, eventually, effect: Effect, verbs: frozenset[Verb], turn: Turn
) -> None:
    fault = wire.proxy.add(effect, in_place(place, verbs), turn)
    place.apply()
    eventually(in_order(place))
    assert fault.hits > 0
    wire.proxy.lift(fault)
    eventually(wire.operator.idle)
    assert wire.proxy.count(in_place(place)) - fault.hits <= CREATE_TO_READY


@pytest.mark.parametrize(
    "effect",
    [
        pytest.param(WatchError(410), id="410"),
        pytest.param(Cut(after_events=1, after_bytes=9), id="cut-in-an-event"),
        pytest.param(Cut(), id="cut"),
    ],
)
def test_watches_that_break_are_opened_again_and_what_happened_meanwhile_is_seen(
    wire: Wire, place: Place, eventually, effect: Effect
) -> None:
    place.apply()
    eventually(in_order(place))
    fault = wire.proxy.add(effect, Which(WATCHES), Turn(times=5))
    place.scale(3)
    place.apply("second")
    eventually(lambda: place.get("deployment", "demo")["spec"]["replicas"] == 1)
    eventually(place.reached("WorkloadAvailable", "False", "Starting", "second"))
    assert fault.hits > 0


@pytest.mark.parametrize("kind", ["inferenceservices", "deployments"])
def test_an_error_that_ends_a_watch_ends_not_the_operator(wire: Wire, place: Place, eventually, kind: str) -> None:
    """kopf takes it for fatal."""
    place.apply()
    eventually(in_order(place))
    failures = wire.operator.metric("graphpod_operator_watch_failures_total")
    wire.proxy.add(WatchError(500), Which(WATCHES, resource=kind), Turn(times=1))
    place.kubectl("annotate", kind, "demo", "example.com/touched=yes")
    place.scale(3)
    eventually(lambda: wire.operator.metric("graphpod_operator_watch_failures_total") > failures)
    place.apply("second")
    eventually(place.reached("WorkloadAvailable", "False", "Starting", "second"))
    eventually(lambda: place.get("deployment", "demo")["spec"]["replicas"] == 1)
    assert wire.operator.stop() == 0
    wire.operator.start()


def test_what_happened_while_the_watches_were_frozen_is_seen_when_they_go_on(
    wire: Wire, place: Place, eventually
) -> None:
    place.apply()
    eventually(in_order(place))
    with wire.proxy.during(Freeze(), Which(WATCHES)):
        place.apply("second")
        place.scale(3)
    eventually(lambda: place.get("deployment", "demo")["spec"]["replicas"] == 1)
    eventually(place.reached("WorkloadAvailable", "False", "Starting", "second"))


@pytest.mark.slow
def test_watches_frozen_for_good_are_given_up_and_opened_again(wire: Wire, place: Place, eventually) -> None:
    lists = Which(frozenset({Verb.LIST}), resource=Resource.InferenceService.plural)
    assert wire.operator.stop() == 0
    before = wire.proxy.count(lists)
    place.apply()
    wire.operator.start()
    eventually(in_order(place))
    # one fills the store, whose version answers the other, kopf's: no resync follows that finds what a watch misses
    eventually(lambda: wire.proxy.count(lists) == before + 2)
    opened = wire.proxy.count(Which(WATCHES))
    fault = wire.proxy.add(Freeze(), Which(WATCHES), Turn(times=len(WATCHED)))
    fault.reached(len(WATCHED))
    place.apply("second")
    eventually(place.reached("WorkloadAvailable", "False", "Starting", "second"), timeout=LOST_WATCH_LIMIT)
    assert not fault.lifted
    assert wire.proxy.count(Which(WATCHES)) > opened


@pytest.mark.parametrize("kind", WATCHED, ids=lambda kind: kind.kind)
def test_a_restart_in_which_one_list_comes_late_writes_nothing(
    wire: Wire, place: Place, audit: Audit, eventually, kind: Resource
) -> None:
    """Contract 5: nothing is decided before every list is there."""
    place.apply()
    eventually(in_order(place))
    eventually(lambda: place.status().get("updatedReplicas") == 1)
    eventually(wire.operator.idle)
    assert wire.operator.stop() == 0
    mark = audit.mark()
    late = wire.proxy.add(Slow(delay=LATE_SECONDS), Which(frozenset({Verb.LIST}), resource=kind.plural), Turn(times=1))
    wire.operator.start()
    eventually(wire.operator.idle, timeout=60)
    place.apply("second")  # it is in order when every event before it was heard
    eventually(place.reached("WorkloadAvailable", "False", "Starting", "second"))
    eventually(wire.operator.idle)
    assert late.hits == 1
    written = audit.since(mark).by(USER).of(place.namespace).writes()
    assert [one for one in written if one.name == "demo" or one.name.startswith("demo-")] == []


def test_an_api_server_that_is_gone_for_a_while_is_found_again(wire: Wire, place: Place, eventually) -> None:
    wire.proxy.refuse()
    try:
        place.apply()
        place.label("gisvc", "demo", {"seen": "no"})
    finally:
        wire.proxy.accept()
    eventually(in_order(place))
