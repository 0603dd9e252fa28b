"""On CUDA as on the CPU: graphs give the tokens of eager, at every policy, on the same schedule."""

from collections.abc import Callable

import pytest
import torch

from graphpod_policy import Backend, Phase, Policy
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start import Started
from graphpod_runtime.graphs.report import SelfCheck
from tests.unit.runtime.conftest import random_prompts

PREFILLS = (Policy.Breakable,)
DECODES = (Policy.Full, Policy.Breakable)


def started_parts(runner: Runner) -> Started:
    return runner._engine


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("prefill", PREFILLS)
def test_graphs_give_the_tokens_of_eager(
    started: Callable[..., Runner], prefill: Policy, decode: Policy, batch: int
) -> None:
    prompts = random_prompts(20)
    eager = started(Policy.Disabled, Policy.Disabled, max_batch=batch)
    expected = generate(eager, prompts, 24, ignore_eos=True)
    runner = started(prefill, decode, max_batch=batch, decode_sizes=tuple(s for s in (1, 2, 4, 8) if s <= batch))
    assert generate(runner, prompts, 24, ignore_eos=True) == expected
    assert runner.report.backend is Backend.CudaGraph
    for phase in Phase:
        report = runner.report.phases[phase]
        assert report.effective is (prefill if phase is Phase.Prefill else decode)
        assert report.self_check is SelfCheck.Passed
        assert report.captured == report.planned_sizes > 0
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0
    assert runner.counters.value("graphpod_eager_passes_total") == 0


def test_replay_launches_graphs_and_no_model_code(started: Callable[..., Runner]) -> None:
    runner = started(Policy.Breakable, Policy.Full)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        generate(runner, [[3, 4, 5]], 4, ignore_eos=True)
    launches = sum(event.count for event in profile.key_averages() if event.key == "cudaGraphLaunch")
    parts = started_parts(runner)
    segments = {phase: parts.graphs[phase].segments for phase in Phase}
    assert launches == segments[Phase.Prefill] + 3 * segments[Phase.Decode]
