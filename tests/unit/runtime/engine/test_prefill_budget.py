"""How many prompt tokens go between two decode passes, by the clock of a start."""

from collections.abc import Callable

import pytest

from graphpod_policy import Policy
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.start.limits.prefill_budget import prefill_budget, seconds_of


@pytest.mark.parametrize(
    ("decode", "budget"), [(1.0, 16), (2.0, 16), (2.5, 32), (4.0, 32), (7.9, 64), (8.0, 500), (0.1, 16)]
)
def test_a_decode_waits_at_most_twice_its_own_time(decode: float, budget: int) -> None:
    times = {16: 4.0, 32: 5.0, 64: 9.0, 128: 16.0}
    assert prefill_budget(decode, list(times), times.__getitem__, 500) == budget


def test_no_pass_is_longer_than_the_chunk() -> None:
    assert prefill_budget(0.1, [64], lambda size: 1.0, 48) == 48


def test_few_sizes_are_measured() -> None:
    asked: list[int] = []
    sizes = range(16, 16 * 75, 16)
    assert prefill_budget(1.0, sizes, lambda size: (asked.append(size), size / 200)[1], 2048) == 400
    assert len(asked) == 7
    assert len(set(asked)) == 7


def test_the_second_of_two_runs_counts_to_the_end_of_what_the_device_does() -> None:
    done: list[str] = []
    assert seconds_of(lambda: done.append("run"), lambda: done.append("wait")) >= 0
    assert done == ["wait", "run", "wait"] * 2


def test_a_start_measures_the_budget_unless_it_is_set(started: Callable[..., Runner]) -> None:
    assert started().config.prefill_budget in (16, 32)
    assert started(prefill_budget=20).config.prefill_budget == 20
    without = started(Policy.Disabled, Policy.Disabled)
    assert without.config.prefill_budget == without.config.prefill_chunk
    assert Limits.serving(without.config).prefill_budget == 32
    assert Limits.of(without.config, 1).prefill_budget is None, "nothing depends on a clock"
