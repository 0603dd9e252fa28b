"""POST /sleep, /wake and /reload, and what requests get meanwhile."""

import asyncio
import concurrent.futures
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from graphpod_policy.http_limits import POD_UID_HEADER
from graphpod_runtime.front.access.api_key import ApiKey
from graphpod_runtime.front.health import admin_app
from graphpod_runtime.front.requests.sleeping import NotNow, Sleeping
from graphpod_runtime.front.status import Change
from graphpod_runtime.wire.messages import Command, Reload, Residence, Sleep

from .conftest import WAIT_SECONDS, Front, start_front

ASK = {"model": "echo", "prompt": "ab", "max_tokens": 2}
AWAKE = {
    "state": "Awake", "idle": False, "source": None, "freedBytes": 0, "sleepSeconds": 0.0, "wakeSeconds": 0.0,
    "modelRevision": "", "refused": None, "problem": None,
}  # fmt: skip


def order(front: Front, path: str, **headers: str) -> httpx2.Response:
    """POST on the admin port."""
    return httpx2.post(front.admin + path, timeout=WAIT_SECONDS, headers=headers)


def timeless(said: dict[str, Any]) -> dict[str, Any]:
    return said | {"sleepSeconds": 0.0, "wakeSeconds": 0.0}


@pytest.fixture(scope="module")
def sleeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, Path]]:
    """A front whose engine can sleep, and the file that holds its wake, or makes its reload fail, while it exists. At
    its end it sleeps, and ends all the same."""
    folder = tmp_path_factory.mktemp("sleeping")
    hold = folder / "hold"
    front = start_front(folder, script="sleeps", environment={"GRAPHPOD_SLEEP_HOLD": str(hold)})
    yield front, hold
    assert order(front, "/sleep").json()["state"] == "Asleep"
    front.process.terminate()
    assert front.ended() == 0, front.log.read_text()


def test_asleep_by_command_it_refuses_requests_until_it_is_woken(sleeping: tuple[Front, Path]) -> None:
    front, _ = sleeping
    assert timeless(front.get("/warmup").json()["sleep"]) == AWAKE

    asleep = order(front, "/sleep")
    assert (asleep.status_code, timeless(asleep.json())) == (
        200, AWAKE | {"state": "Asleep", "source": "Memory", "freedBytes": 1000},
    )  # fmt: skip
    assert front.get("/warmup").json()["sleep"] == asleep.json()
    assert (front.get("/readyz").status_code, front.get("/readyz").text) == (503, "Asleep\n")
    assert (front.get("/livez").status_code, front.get("/startupz").status_code) == (200, 200)
    assert httpx2.get(front.http + "/health").json()["error"]["code"] == "asleep"
    refused = front.post("/v1/completions", ASK)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "asleep")
    assert int(refused.headers["retry-after"]) >= 1
    assert front.metric("graphpod_asleep") == 1
    again = order(front, "/sleep")
    assert (again.status_code, again.json()) == (200, asleep.json())

    assert order(front, "/wake").json()["state"] == "Awake"
    assert front.get("/readyz").status_code == 200
    assert front.post("/v1/completions", ASK).status_code == 200
    assert front.metric("graphpod_asleep") == 0
    assert front.metric("graphpod_sleep_transition_duration_seconds_count", transition="wake") == 1


def test_an_order_for_another_pod_is_refused_and_says_which_pod_this_is(sleeping: tuple[Front, Path]) -> None:
    front, _ = sleeping
    uid = front.get("/warmup").json()["podUID"]
    for path in ("/sleep", "/wake", "/reload?revision=r9"):
        refused = order(front, path, **{POD_UID_HEADER: "pod-before"})
        assert refused.status_code == 421
        assert refused.text == f"this is the pod of uid {uid}, and the order is for 'pod-before': nothing was done\n"
    said = front.get("/warmup").json()["sleep"]
    assert (said["state"], said["modelRevision"], said["problem"]) == ("Awake", "", None)
    assert order(front, "/wake", **{POD_UID_HEADER: uid}).status_code == 200


def test_a_request_that_comes_while_it_wakes_waits_for_its_answer(sleeping: tuple[Front, Path]) -> None:
    front, hold = sleeping
    order(front, "/sleep")
    hold.touch()
    waking = order(front, "/wake?wait=0")
    assert (waking.status_code, waking.json()["state"]) == (202, "Waking")
    assert (front.get("/readyz").status_code, front.get("/readyz").text) == (503, "Waking\n")
    assert (order(front, "/reload?revision=x").status_code, order(front, "/sleep").status_code) == (503, 503)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(front.post, "/v1/completions", ASK)
        front.eventually("the request is open", lambda: httpx2.get(front.http + "/load").json()["server_load"] == 1)
        assert not asked.done()
        hold.unlink()
        assert asked.result().status_code == 200
    assert front.get("/warmup").json()["sleep"]["state"] == "Awake"


def test_new_weights_have_the_name_that_was_given_and_refused_ones_change_nothing(
    sleeping: tuple[Front, Path],
) -> None:
    front, hold = sleeping
    done = order(front, "/reload?revision=r1")
    before = timeless(done.json())
    assert (done.status_code, before["state"], before["modelRevision"]) == (200, "Awake", "r1")
    hold.touch()
    refused = order(front, "/reload?revision=r2")
    hold.unlink()
    assert (refused.status_code, timeless(refused.json())) == (
        409, before | {"refused": "r2", "problem": "another model"},
    )  # fmt: skip
    assert front.post("/v1/completions", ASK).status_code == 200


def test_asleep_by_command_it_sleeps_again_after_new_weights_and_keeps_requests_away(
    sleeping: tuple[Front, Path],
) -> None:
    front, _ = sleeping
    order(front, "/sleep")
    assert order(front, "/reload?revision=r3").json()["modelRevision"] == "r3"
    front.eventually("it is asleep again", lambda: front.get("/readyz").text == "Asleep\n")
    assert front.post("/v1/completions", ASK).json()["error"]["code"] == "asleep"
    assert order(front, "/wake").json()["state"] == "Awake"


async def test_only_the_end_of_what_was_asked_for_is_its_end() -> None:
    status = SimpleNamespace(started=True, engine_alive=True, draining=False, change=None, sleep_state="Reloading")
    sent, arrived = list[Command](), asyncio.Event()

    def send(command: Command) -> None:
        sent.append(command)
        arrived.set()

    sleeping = Sleeping(status, send)  # type: ignore[arg-type]
    sleeping.serve(asyncio.get_running_loop())
    asked = asyncio.create_task(sleeping.change(Change.Reload, "r2", WAIT_SECONDS))
    await arrived.wait()
    sleeping.heard(Residence(asleep=True, idle=True, revision="r1"))  # it fell asleep before it read the command
    assert status.change is Change.Reload
    with pytest.raises(NotNow):
        await sleeping.change(Change.Reload, "r3")
    sleeping.heard(Residence(revision="r2"))
    assert await asked
    assert status.change is None
    assert not await sleeping.change(Change.Sleep, wait=0.0)
    assert sent == [Reload("r2"), Sleep()]


def test_who_has_no_key_of_the_api_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    asked: list[Change] = []

    class Asked:
        async def change(self, what: Change, revision: str, wait: float) -> bool:
            asked.append(what)
            return False

    status = SimpleNamespace(sleep=dict, pod_uid="uid-1")
    key = ApiKey(tmp_path / "key")
    client = TestClient(admin_app(status, None, None, Asked(), key))  # type: ignore[arg-type]
    for headers in ({}, {"authorization": "Bearer wrong"}):
        assert [client.post(f"/{change}?revision=r", headers=headers).status_code for change in Change] == [401] * 3
    assert asked == []
    right = {"authorization": "Bearer secret"}
    assert [client.post(f"/{change}?revision=r", headers=right).status_code for change in Change] == [202] * 3
    assert asked == list(Change)


def test_an_engine_without_the_feature_refuses_and_serves_on(front: Front) -> None:
    refused = order(front, "/sleep")
    assert refused.status_code == 409
    assert "spec.engine.sleep" in refused.json()["problem"]
    assert front.get("/readyz").status_code == 200
    assert front.post("/v1/completions", ASK).status_code == 200


@pytest.mark.parametrize(
    "path", ["/reload", f"/reload?revision={'r' * 254}", "/reload?revision=a%0Ab", "/sleep?wait=soon"]
)
def test_what_cannot_be_asked_for_is_named(front: Front, path: str) -> None:
    assert order(front, path).status_code == 400
