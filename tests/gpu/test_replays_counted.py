"""Replays are counted as the profiler sees them: graph launches on the device."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphpod_policy import Policy
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from tests.unit.runtime.conftest import random_prompts

REPLAYS = "graphpod_graph_replays_total"


@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
def test_counted_replays_are_the_profilers_graph_launches(
    started: Callable[..., Runner], llama_folder: Path, decode: Policy
) -> None:
    """Each replay of a phase launches as many graphs as its sizes have segments."""
    runner = started(Policy.Breakable, decode, folder=llama_folder)
    phases = [(phase.value, graphs) for phase, graphs in runner.engine.graphs.items()]
    before = {phase: runner.counters.value(REPLAYS, phase=phase) for phase, _ in phases}
    with torch.profiler.profile(activities=[*torch.profiler.supported_activities()]) as profiler:
        generate(runner, random_prompts(12, longest=30), 20, ignore_eos=True)
    launches = sum(event.name == "cudaGraphLaunch" for event in profiler.events())
    replays = {phase: runner.counters.value(REPLAYS, phase=phase) - before[phase] for phase, _ in phases}
    assert min(replays.values()) > 0
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0
    assert launches == sum(replays[phase] * graphs.segments for phase, graphs in phases)
