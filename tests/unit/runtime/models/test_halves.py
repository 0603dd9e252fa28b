"""The compiled halves of a layer: two compilations each for any ladder, and the compiled code is what graphs run."""

from collections.abc import Callable

import pytest

from graphpod_policy import CompileMode, Policy
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.models.halves import After, Before
from tests.unit.runtime.conftest import random_prompts


def test_a_ladder_compiles_each_half_twice_and_replays_what_was_compiled(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    # CompileMode is planned only on a GPU until it is proved there.
    monkeypatch.setattr("graphpod_runtime.engine.start.not_built", lambda features, request: ())
    prompts = random_prompts(8)
    expected = generate(started(Policy.Disabled, Policy.Disabled), prompts, 8, ignore_eos=True)
    runner = started(Policy.Breakable, Policy.Full, compile=CompileMode.Inductor)
    halves = runner._engine.model.body.halves
    assert halves.compiles == 4, "with a dynamic number of rows, and with one row"

    def never(*arguments: object) -> object:
        raise AssertionError("the code that was compiled runs uncompiled")

    monkeypatch.setattr(Before, "__call__", never)
    monkeypatch.setattr(After, "__call__", never)
    assert generate(runner, prompts, 8, ignore_eos=True) == expected
    assert halves.compiles == 4
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0
