"""The halves of a layer are compiled for any number of rows and shared by all layers: an exact number of compilations,
whatever the ladder. A compiler that gives up is an error, since it would go on with the code as it is.
"""

from collections.abc import Callable

import pytest

from graphpod_policy import CompileMode, Policy
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.models.halves import After, Before
from tests.unit.runtime.conftest import random_prompts

FIFTY = tuple(range(2, 101, 2))


@pytest.fixture(autouse=True)
def _compiling_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is planned only on a GPU until it is proved there."""
    monkeypatch.setattr("graphpod_runtime.engine.start.not_built", lambda features, request: ())


def test_a_ladder_of_50_sizes_compiles_each_half_for_any_number_of_rows_and_runs_nothing_else(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = random_prompts(8)
    expected = generate(started(Policy.Disabled, Policy.Disabled), prompts, 8, ignore_eos=True)
    sizes = {"prefill_sizes": FIFTY, "prefill_chunk": 100}
    runner = started(Policy.Breakable, Policy.Full, compile=CompileMode.Inductor, **sizes)
    assert len(runner._engine.graphs) == 2
    halves = runner._engine.model.body.halves
    assert halves.compiles == 4, "with a dynamic number of rows, and with one row"

    def never(*arguments: object) -> object:
        raise AssertionError("the code that was compiled runs uncompiled")

    monkeypatch.setattr(Before, "__call__", never)
    monkeypatch.setattr(After, "__call__", never)
    assert generate(runner, prompts, 8, ignore_eos=True) == expected
    assert halves.compiles == 4
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0
