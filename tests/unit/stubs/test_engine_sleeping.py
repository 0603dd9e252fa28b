"""POST /sleep, /wake and /reload of the stub engine, as the real one answers them."""

import json
from typing import Any

import pytest

from graphpod_runtime.engine.sleep.slumber import WHY
from graphpod_runtime.front.requests.sleeping import MOST_REVISION
from graphpod_runtime.front.status import Change
from stubs.engine import sleeping
from stubs.engine.sleeping import PATHS, Sleeping
from stubs.engine.story import AWAKE, WEIGHTS_BYTES

CAN = json.dumps({"features": {"sleep": True, "reload": True}}).encode()


def said(one: Sleeping, path: str) -> tuple[int, dict[str, Any]]:
    answer = one.answer(path)
    return answer.status, json.loads(answer.body)


def test_words_and_paths_are_the_real_engine_s() -> None:
    assert [f"/{change}" for change in Change] == list(PATHS)
    assert (sleeping.MOST_REVISION, sleeping.WHY) == (MOST_REVISION, WHY)


def test_it_sleeps_wakes_and_takes_new_weights() -> None:
    one = Sleeping(CAN)
    asleep = AWAKE | {"state": "Asleep", "source": "Disk", "freedBytes": WEIGHTS_BYTES}
    assert said(one, "/sleep?wait=0") == (200, asleep)
    assert one.away
    assert said(one, "/wake?wait=0") == (200, asleep | {"state": "Awake"})
    assert said(one, "/reload?wait=0&revision=v%202")[1]["modelRevision"] == "v 2"
    assert not one.away


def test_without_the_features_it_refuses_by_name() -> None:
    for config in (b"{}", b"no JSON", b"[]"):
        one = Sleeping(config)
        status, body = said(one, "/reload?revision=v2")
        assert (status, body["refused"], "spec.engine.reload" in body["problem"]) == (409, "v2", True)
        status, body = said(one, "/sleep")
        assert (status, body["refused"], body["state"]) == (409, None, "Awake")


@pytest.mark.parametrize("path", ["/reload", "/reload?revision=", f"/reload?revision={'v' * 254}", "/sleep?wait=long"])
def test_what_is_malformed_changes_nothing(path: str) -> None:
    one = Sleeping(CAN)
    assert one.answer(path).status == 400
    assert one.said == AWAKE
