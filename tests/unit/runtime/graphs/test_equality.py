"""Graphs against the same engine with both phases Disabled: fp32, greedy, token for token."""

from collections.abc import Callable

import pytest

from graphpod_policy import Policy
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.runner import Runner
from tests.unit.runtime.conftest import random_prompts


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
def test_graphs_give_the_tokens_of_eager(started: Callable[..., Runner], batch: int, decode: Policy) -> None:
    eager = started(Policy.Disabled, Policy.Disabled, max_batch=batch)
    graphs = started(
        Policy.Breakable, decode, max_batch=batch, decode_sizes=tuple(s for s in (1, 2, 4, 8) if s <= batch)
    )
    prompts = random_prompts(20)
    expected = generate(eager, prompts, 16, ignore_eos=True)
    assert generate(graphs, prompts, 16, ignore_eos=True) == expected
    assert graphs.counters.value("graphpod_graph_fallbacks_total") == 0
    assert graphs.counters.value("graphpod_graph_replays_total", phase="prefill") > 0
    assert graphs.counters.value("graphpod_graph_replays_total", phase="decode") > 0
