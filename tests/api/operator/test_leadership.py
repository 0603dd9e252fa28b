"""Two operators and one Lease: whatever befalls the leader, at no time do both write."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from graphpod_operator.kube.resources import WATCHED
from stubs.proxy import Proxy
from tests.api.operator.pods import AdminPorts
from tests.api.operator.process import LEASES, Operator, grant
from tests.audit import Audit, Trail
from tests.eventually import Eventually
from tests.places import Place

pytestmark = pytest.mark.chaos
FAILOVER_LIMIT = 20.0
"""Seconds in which another operator works (contract 10)."""
STILL = 20.0
"""Seconds for which a leader, or its API server, stands still: longer than a Lease binds."""
USERS = ("user3", "user4")
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES}/leases/graphpod-operator"


@pytest.fixture
def wrong(request: pytest.FixtureRequest) -> tuple[int, int]:
    """By how many hours the wall clocks of leader and waiting operator are wrong."""
    hours: tuple[int, int] = getattr(request, "param", (0, 0))
    return hours


@pytest.fixture
def pair(
    proxy: Proxy,
    running_operator: Operator,
    admin_ports: AdminPorts,
    tmp_path: Path,
    eventually: Eventually,
    wrong: tuple[int, int],
) -> Iterator[tuple[Operator, Operator]]:
    """The leader, and one that waits. Each is a user of its own, so that the audit log tells them apart."""
    cluster, made = running_operator.cluster, []
    for user, hours in zip(USERS, wrong, strict=True):
        grant(cluster, user)
        kubeconfig = proxy.kubeconfig(cluster.token_kubeconfig(user), tmp_path / f"{user}.kubeconfig")
        before = WRONG.replace("{hours}", str(hours)) if hours else ""
        log = tmp_path / f"{user}.log"
        operator = Operator(cluster, admin_ports.url, log, user, kubeconfig=kubeconfig, before=before)
        eventually.logs.append(operator.log)
        operator.start()
        made.append(operator)
        eventually(made[0].idle)  # so the first leads
    leader, waiting = made
    eventually(lambda: waiting.ask("/readyz")[0] == 200)
    try:
        yield leader, waiting
    finally:
        for operator in made:
            assert operator.process is not None
            operator.process.send_signal(signal.SIGCONT)
            operator.kill()
        cluster.delete(LEASE)


WRONG = """
import signal, time
from graphpod_operator.kube import clock
hours = {hours}
real = time.time
time.time = lambda: real() + 3600 * hours
class Wrong(clock.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
clock.datetime = Wrong
def jump(*_):
    global hours
    hours = -hours
signal.signal(signal.SIGUSR1, jump)
"""
"""A wall clock that is wrong by so many hours, and by as many the other way after SIGUSR1."""


@contextmanager
def busy(place: Place) -> Iterator[None]:
    """Somebody undoes all the time what the operator wants, so that it always has something to write."""
    stop = threading.Event()

    def undo() -> None:
        while not stop.wait(0.2):
            place.scale(3)

    thread = threading.Thread(target=undo)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def written(audit: Audit, mark: int, place: Place) -> Trail:
    return audit.since(mark).by(*USERS).of(place.namespace).writes()


def put_back(audit: Audit, mark: int, place: Place, user: str) -> Callable[[], bool]:
    return lambda: len(written(audit, mark, place).by(user)) > 2


def lease_of(place: Place) -> dict[str, Any]:
    spec: dict[str, Any] = place.cluster.read(LEASE)["spec"]
    return spec


def handed_over_once(audit: Audit, mark: int, place: Place) -> None:
    """Each wrote in one stretch, and the second began when the first had ended."""
    terms = written(audit, mark, place).terms()
    assert [term.writer for term in terms] == list(USERS), terms
    assert terms[0].last < terms[1].first


def test_the_waiting_operator_is_ready_and_writes_nothing(
    pair: tuple[Operator, Operator], place: Place, audit: Audit, eventually: Eventually
) -> None:
    leader, waiting = pair
    mark = audit.mark()
    place.apply()
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    eventually(leader.idle)
    assert (leader.leads(), waiting.leads()) == (True, False)
    assert waiting.ask("/readyz")[0] == 200
    assert {one.writer for one in written(audit, mark, place)} == {USERS[0]}


def test_an_operator_that_ends_leaves_its_lease_to_the_other_at_once(
    pair: tuple[Operator, Operator], place: Place, audit: Audit, eventually: Eventually
) -> None:
    leader, waiting = pair
    place.apply()
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    mark = audit.mark()
    with busy(place):
        eventually(put_back(audit, mark, place, USERS[0]))
        assert leader.stop() == 0
        eventually(put_back(audit, mark, place, USERS[1]))
    handed_over_once(audit, mark, place)
    leader.start()  # as the kubelet would; it waits now
    eventually(lambda: leader.ask("/readyz")[0] == 200)
    assert waiting.leads()


def test_an_operator_that_is_killed_is_replaced_within_the_limit(
    pair: tuple[Operator, Operator], place: Place, audit: Audit, eventually: Eventually, record_property
) -> None:
    leader, _ = pair
    place.apply()
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    mark = audit.mark()
    leader.kill()
    killed = time.time()
    place.scale(3)
    eventually(lambda: bool(written(audit, mark, place).by(USERS[1])), timeout=2 * FAILOVER_LIMIT)
    first = written(audit, mark, place).by(USERS[1])[0]
    took = first.at - killed
    lists = {one.resource for one in audit.since(mark).by(USERS[1]) if one.verb == "list" and one.at < first.at}
    assert lists >= {kind.plural for kind in WATCHED}, "it waited long, and lists again before it writes"
    record_property("figure: failover after kill -9", f"{took:.1f} s")
    assert took <= FAILOVER_LIMIT


def test_a_container_that_follows_a_killed_one_does_not_wait_for_its_lease(
    pair: tuple[Operator, Operator], place: Place, audit: Audit, eventually: Eventually, record_property
) -> None:
    leader, _ = pair
    place.apply()
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    leader.kill()
    place.drop("service", "demo")
    mark, started = audit.mark(), time.time()
    leader.start(whole=True)
    eventually(lambda: bool(written(audit, mark, place)))
    (write,) = written(audit, mark, place)[:1]
    record_property("figure: restart to the first write", f"{write.at - started:.1f} s")
    assert (write.writer, write.resource) == (USERS[0], "services")


def test_a_leader_that_stands_still_writes_nothing_when_it_goes_on(
    pair: tuple[Operator, Operator], place: Place, audit: Audit, eventually: Eventually
) -> None:
    leader, _ = pair
    assert leader.process is not None
    place.apply()
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    mark = audit.mark()
    with busy(place):
        eventually(put_back(audit, mark, place, USERS[0]))
        leader.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        eventually(put_back(audit, mark, place, USERS[1]), timeout=2 * STILL)
        eventually(lambda: time.monotonic() - stopped > STILL)
        leader.process.send_signal(signal.SIGCONT)
        assert leader.process.wait(2 * STILL) == 1
    handed_over_once(audit, mark, place)
    assert "is held by" in leader.log.read_text()


@pytest.mark.parametrize("wrong", [(1, -1), (-1, 1)], indirect=True, ids=str)
def test_wall_clocks_that_are_wrong_and_jump_move_nothing(
    pair: tuple[Operator, Operator], place: Place, audit: Audit, eventually: Eventually, wrong: tuple[int, int]
) -> None:
    leader, waiting = pair
    place.apply()
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    said = lease_of(place)["renewTime"]
    apart = datetime.fromisoformat(said) - datetime.now(UTC)
    assert round(apart.total_seconds() / 3600) == wrong[0], "the clock is wrong where it is written down"
    mark = audit.mark()
    with busy(place):
        eventually(put_back(audit, mark, place, USERS[0]))
        for operator in pair:
            assert operator.process is not None
            operator.process.send_signal(signal.SIGUSR1)
        jumped = audit.mark()
        eventually(lambda: sum(one.kind == "leases" for one in audit.since(jumped).by(USERS[0]).writes()) > 2)
        eventually(lambda: bool(written(audit, jumped, place).by(USERS[0])))
        assert leader.stop() == 0
        eventually(put_back(audit, mark, place, USERS[1]))
    assert waiting.leads()
    handed_over_once(audit, mark, place)


def test_an_api_server_that_is_away_restarts_nobody_and_one_leads_when_it_is_back(
    pair: tuple[Operator, Operator], proxy: Proxy, place: Place, audit: Audit, eventually: Eventually
) -> None:
    place.apply()
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    mark = audit.mark()
    with busy(place):
        eventually(put_back(audit, mark, place, USERS[0]))
        proxy.refuse()
        gone = time.monotonic()
        eventually(lambda: [one.ask("/readyz")[0] for one in pair] == [503, 503])
        eventually(lambda: not any(one.leads() for one in pair), timeout=STILL)
        eventually(lambda: time.monotonic() - gone > STILL)
        assert [one.ask("/healthz")[0] for one in pair] == [200, 200]
        away = audit.mark()
        proxy.accept()
        eventually(lambda: bool(written(audit, away, place)), timeout=2 * STILL)
        eventually(lambda: sum(one.leads() for one in pair) == 1)
    terms = written(audit, mark, place).terms()
    assert len(terms) == len({term.writer for term in terms}), terms
    holder = lease_of(place)["holderIdentity"]
    for operator in pair:
        assert operator.process is not None
        assert operator.process.poll() is None or operator.uid != holder
