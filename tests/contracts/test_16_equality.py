"""Graphs give the tokens of the same engine with both phases Disabled: fp32, greedy, the same schedule, no fallback.
Another token is right only where eager's two best are less than 1e-3 apart, at most once in a thousand tokens.
"""

from collections.abc import Callable

import pytest

from graphpod_policy import Backend, Device, Phase, Policy
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs.report import SelfCheck
from tests.unit.runtime.conftest import random_prompts


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize(
    ("prefill", "decode"),
    [(Policy.Breakable, Policy.Full), (Policy.Breakable, Policy.Breakable), (Policy.Piecewise, Policy.Full)],
)
def test_graphs_give_the_tokens_of_eager(
    started: Callable[..., Runner], device: Device, prefill: Policy, decode: Policy, batch: int
) -> None:
    prompts = random_prompts(20)
    eager = started(Policy.Disabled, Policy.Disabled, max_batch=batch)
    expected = generate(eager, prompts, 16, ignore_eos=True)
    sizes = tuple(size for size in (1, 2, 4, 8) if size <= batch)
    graphs = started(prefill, decode, max_batch=batch, decode_sizes=sizes)
    assert generate(graphs, prompts, 16, ignore_eos=True) == expected
    assert graphs.report.backend is (Backend.CudaGraph if device is Device.Cuda else Backend.Recorder)
    for phase, policy in ((Phase.Prefill, prefill), (Phase.Decode, decode)):
        report = graphs.report.phases[phase]
        assert (report.effective, report.self_check) == (policy, SelfCheck.Passed)
        assert report.captured == report.planned_sizes > 0
        assert graphs.counters.value("graphpod_graph_replays_total", phase=phase) > 0
    assert graphs.counters.value("graphpod_graph_fallbacks_total") == 0
    assert graphs.counters.value("graphpod_eager_passes_total") == 0
