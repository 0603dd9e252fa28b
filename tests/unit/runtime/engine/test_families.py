"""Every family on graphs gives the tokens it gives without, on the same schedule."""

from collections.abc import Callable
from pathlib import Path

import pytest

from graphpod_policy import Phase, Policy
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.wire.report import SelfCheck
from tests.unit.runtime.conftest import FAMILIES, random_prompts, write_family


@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_give_the_tokens_of_eager(
    tmp_path: Path, started: Callable[..., Runner], family: str, decode: Policy
) -> None:
    folder = write_family(tmp_path, family)
    prompts = random_prompts(10)
    expected = generate(started(Policy.Disabled, Policy.Disabled, folder=folder), prompts, 24, ignore_eos=True)
    runner = started(Policy.Breakable, decode, folder=folder)
    assert generate(runner, prompts, 24, ignore_eos=True) == expected
    assert all(runner.report.phases[phase].self_check is SelfCheck.Passed for phase in Phase)
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0
