"""When a new status is worth a write."""

from typing import Any

from graphpod_operator.status.write_throttle import wait
from tests.unit.operator.objects import pod
from tests.unit.operator.told import HASH, READY, STARTING, UID, reading, seen, the


def capturing(prefill: int) -> dict[str, Any]:
    observed = seen([pod(config_hash=HASH)], {UID: reading(state="Capturing", captured=(prefill, 0))}, STARTING)
    return the(observed).model_dump(mode="json", by_alias=True, exclude_none=True)


def test_captures_are_written_every_third_or_minute_details_every_five_seconds_and_conditions_twice_a_second() -> None:
    assert wait(float("-inf"), {}, capturing(1), 0.0) == 0
    assert wait(0.0, capturing(1), capturing(1), 100.0) is None
    assert wait(0.0, capturing(1), capturing(2), 10.0) == 50, "one size more waits for a minute"
    assert wait(0.0, capturing(1), capturing(10), 4.0) == 1, "a step of 9/26 waits for 5 s"
    assert wait(0.0, capturing(1), {**capturing(1), "replicas": 7}, 4.0) == 1, "a detail waits for 5 s"
    assert wait(0.0, capturing(1), capturing(10), 5.0) == 0
    done = the(READY).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert wait(0.0, capturing(9), done, 0.25) == 0.25, "a condition waits for a moment"
    assert wait(0.0, capturing(9), done, 0.5) == 0
