"""Leadership: one writes at a time, whatever the API server, the clocks and the contenders do."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from graphpod_operator.kube.cluster import Conflict, NotLeading, Unavailable
from graphpod_operator.kube.lease import DURATION_SECONDS, NAME, RETRY_SECONDS, WRITE_SECONDS, Leadership, LeaseLost

Manifest = dict[str, Any]


class Clock:
    """Moved by hand; `wall` shifts what the dates say."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.wall = 0

    def monotonic(self) -> float:
        return self.now

    def timestamp(self) -> str:
        return f"2026-01-01T{12 + self.wall:02d}:00:00Z"


class Server:
    """One Lease, replaced by its resourceVersion; away when told so."""

    def __init__(self) -> None:
        self.lease: Manifest | None = None
        self.away = False
        self.version = 0

    async def get(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        self._answer()
        return copy.deepcopy(self.lease)

    async def put(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self._answer()
        known = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if body["metadata"].get("resourceVersion") != known:
            raise Conflict(409, "the object has been modified")
        self.version += 1
        self.lease = copy.deepcopy({**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}})
        return copy.deepcopy(self.lease)

    @property
    def holder(self) -> str:
        assert self.lease is not None
        holder: str = self.lease["spec"]["holderIdentity"]
        return holder

    def _answer(self) -> None:
        if self.away:
            raise Unavailable(0, "no answer")


class Scene:
    """One Lease and two contenders whose clocks differ by an hour but go at one pace."""

    def __init__(self) -> None:
        self.server = Server()
        self.clocks = {"one": Clock(), "two": Clock()}
        self.clocks["two"].wall = -1
        self.regained: list[str] = []
        self.one, self.two = (self.contender(name) for name in ("one", "two"))

    def contender(self, name: str) -> Leadership:
        return Leadership(self.server, "ns", name, self.clocks[name], lambda: self.regained.append(name))

    def pass_time(self, seconds: float) -> None:
        for clock in self.clocks.values():
            clock.now += seconds


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_the_first_takes_the_lease_and_the_second_may_not_write(scene: Scene) -> None:
    await scene.one.attempt()
    await scene.two.attempt()
    assert scene.server.holder == "one"
    assert (scene.one.holds(), scene.two.holds()) == (True, False)
    scene.one.fence()
    with pytest.raises(NotLeading, match="was not renewed"):
        scene.two.fence()


async def test_of_two_that_make_the_lease_at_once_one_fails(scene: Scene) -> None:
    found = await scene.server.get("ns", NAME)
    assert found is None
    await scene.one.attempt()
    scene.two._leases = Blind(scene.server)
    await scene.two.attempt()
    assert scene.server.holder == "one"
    assert not scene.two.holds()


class Blind:
    """Answers as if there were no Lease yet: what a contender read before the other wrote."""

    def __init__(self, server: Server) -> None:
        self.put = server.put

    async def get(self, namespace: str, name: str) -> None:
        return None


async def test_a_lease_that_is_renewed_is_never_taken(scene: Scene) -> None:
    for _ in range(30):
        await scene.one.attempt()
        await scene.two.attempt()
        scene.pass_time(2)
    assert scene.server.holder == "one"
    assert not scene.two.won.is_set()


async def test_a_leader_that_stands_still_may_not_write_before_the_next_one_may(scene: Scene) -> None:
    await scene.one.attempt()
    await scene.two.attempt()
    waited = 0
    while not scene.two.holds():
        assert waited < 20
        scene.pass_time(1)
        waited += 1
        await scene.two.attempt()
        assert not (scene.one.holds() and scene.two.holds())
    assert waited == DURATION_SECONDS
    assert WRITE_SECONDS < DURATION_SECONDS


async def test_the_next_one_tries_at_the_moment_at_which_the_lease_ends(scene: Scene) -> None:
    await scene.one.attempt()
    assert scene.one.pause() == RETRY_SECONDS
    await scene.two.attempt()
    waited = 0.0
    while not scene.two.holds():
        waited += (pause := scene.two.pause())
        scene.pass_time(pause)
        await scene.two.attempt()
    assert waited == DURATION_SECONDS
    assert scene.two.pause() == RETRY_SECONDS


async def test_a_leader_that_wakes_and_finds_another_ends(scene: Scene) -> None:
    await scene.one.attempt()
    await scene.two.attempt()
    scene.pass_time(20)
    await scene.two.attempt()
    assert scene.server.holder == "two"
    with pytest.raises(LeaseLost, match="held by two"):
        await scene.one.attempt()
    assert not scene.one.holds()


async def test_a_leader_whose_lease_was_touched_looks_at_once_and_renews(scene: Scene) -> None:
    await scene.one.attempt()
    lease = await scene.server.get("ns", NAME)
    assert lease is not None
    await scene.server.put({**lease, "metadata": {**lease["metadata"], "annotations": {"seen-by": "somebody"}}})
    scene.pass_time(9)
    await scene.one.attempt()
    scene.pass_time(9)
    assert scene.one.holds(), "not only at its next try"
    assert scene.server.lease is not None
    assert scene.server.lease["metadata"]["annotations"] == {"seen-by": "somebody"}


async def test_an_api_server_that_is_away_ends_nobody_and_stops_the_writes(scene: Scene) -> None:
    await scene.one.attempt()
    scene.server.away = True
    for _ in range(150):
        scene.pass_time(2)
        await scene.one.attempt()
    assert not scene.one.holds()
    assert scene.one.trouble == "the Lease ns/graphpod-operator cannot be kept: no answer"
    scene.server.away = False
    await scene.one.attempt()
    assert (scene.one.holds(), scene.one.trouble, scene.regained) == (True, None, ["one"])


async def test_a_renewal_counts_from_its_beginning(scene: Scene) -> None:
    class Slow(Server):
        async def put(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
            answer = await super().put(body)
            scene.pass_time(9)
            return answer

    scene.server = Slow()
    one = scene.contender("one")
    await one.attempt()
    assert one.holds()
    scene.pass_time(1)
    assert not one.holds()


async def test_a_released_lease_is_taken_at_once(scene: Scene) -> None:
    await scene.one.attempt()
    await scene.two.attempt()
    await scene.one.release()
    assert not scene.one.holds()
    await scene.two.attempt()
    assert scene.two.holds()
    assert scene.server.lease is not None
    assert scene.server.lease["spec"]["leaseTransitions"] == 1


async def test_who_lost_the_lease_does_not_release_it(scene: Scene) -> None:
    await scene.one.attempt()
    assert scene.server.lease is not None
    scene.server.lease["spec"]["holderIdentity"] = "two"
    await scene.one.release()
    assert scene.server.holder == "two"


async def test_the_next_container_of_a_pod_goes_on_with_its_lease(scene: Scene) -> None:
    await scene.one.attempt()
    again = scene.contender("one")
    await again.attempt()
    assert again.holds()
    assert scene.server.lease is not None
    assert scene.server.lease["spec"]["leaseTransitions"] == 0


async def test_a_lease_deleted_by_hand_is_made_again(scene: Scene) -> None:
    await scene.one.attempt()
    scene.server.lease = None
    await scene.one.attempt()
    await scene.one.attempt()
    assert scene.server.holder == "one"


async def test_a_lease_whose_dates_were_removed_by_hand_is_kept(scene: Scene) -> None:
    await scene.one.attempt()
    assert scene.server.lease is not None
    scene.server.lease["spec"] = {"holderIdentity": "one"}
    again = scene.contender("one")
    await again.attempt()
    assert again.holds()
    assert scene.server.lease["spec"]["acquireTime"] == scene.server.lease["spec"]["renewTime"]


async def test_the_time_that_stands_in_anothers_lease_is_kept(scene: Scene) -> None:
    await scene.one.attempt()
    assert scene.server.lease is not None
    scene.server.lease["spec"]["leaseDurationSeconds"] = 60
    await scene.two.attempt()
    scene.pass_time(59)
    await scene.two.attempt()
    assert not scene.two.holds()
    scene.pass_time(1)
    await scene.two.attempt()
    assert scene.two.holds()
