"""Graphs give the tokens of the same engine with both phases Disabled: fp32, greedy, the same schedule, no fallback.
Another token is right only where eager's two best are less than 1e-3 apart, at most once in a thousand tokens.
"""

import random
from collections.abc import Callable

import pytest

from graphpod_policy import Backend, Device, Phase, Policy
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.wire.report import SelfCheck
from tests.unit.runtime.conftest import random_prompts


@pytest.fixture(scope="module")
def known() -> dict[object, list[list[int]]]:
    """What an engine without graphs says, by device and test: each policy is compared with the same."""
    return {}


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize(
    ("prefill", "decode"),
    [(Policy.Breakable, Policy.Full), (Policy.Breakable, Policy.Breakable), (Policy.Piecewise, Policy.Full)],
)
def test_graphs_give_the_tokens_of_eager(
    started: Callable[..., Runner],
    device: Device,
    known: dict[object, list[list[int]]],
    prefill: Policy,
    decode: Policy,
    batch: int,
) -> None:
    prompts = random_prompts(20)
    if (key := (device, "batch", batch)) not in known:
        eager = started(Policy.Disabled, Policy.Disabled, max_batch=batch)
        known[key] = generate(eager, prompts, 16, ignore_eos=True)
    expected = known[key]
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


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [(Policy.Breakable, Policy.Full), (Policy.Breakable, Policy.Breakable), (Policy.Piecewise, Policy.Full)],
)
@pytest.mark.parametrize("prefill_chunk", [3, 32])
def test_late_arrivals_aborts_preemptions_and_reused_pages_change_no_token(
    started: Callable[..., Runner],
    device: Device,
    known: dict[object, list[list[int]]],
    prefill: Policy,
    decode: Policy,
    prefill_chunk: int,
) -> None:
    """Chunks of three tokens also give prefill passes with one row a sequence, the shape of a decode pass."""
    choose = random.Random(prefill_chunk)
    lengths = [choose.randint(1, 30) for _ in range(24)]
    prompts = random_prompts(24, longest=60)
    if (key := (device, "chunk", prefill_chunk)) not in known:
        eager = started(Policy.Disabled, Policy.Disabled)
        known[key] = [generate(eager, [prompt], length)[0] for prompt, length in zip(prompts, lengths, strict=True)]
    alone = known[key]

    runner = started(prefill, decode)
    runner.pages = PageAllocator(27)
    scheduler = Scheduler(runner.pages, Limits(128, 8, prefill_chunk, 4, 100), runner.eos_ids)
    arriving = [
        Sequence(str(index), list(prompt), len(prompt), length)
        for index, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
    ]
    got: dict[str, list[int]] = {sequence.id: [] for sequence in arriving}
    aborted: set[str] = set()
    while arriving or scheduler.busy:
        while arriving and choose.random() < 0.4:
            scheduler.submit(arriving.pop(0))
        if choose.random() < 0.03:
            id = str(choose.randrange(24))
            if scheduler.abort(id):
                aborted.add(id)
        batch = scheduler.next()
        if batch is not None:
            for progress in scheduler.advance(batch, runner.forward(batch)):
                got[progress.sequence.id].append(progress.token)

    finished = {id: tokens for id, tokens in got.items() if id not in aborted}
    assert finished == {id: alone[int(id)] for id in finished}
    assert len(finished) > 12
    assert aborted
    assert scheduler.preemptions > 0
    assert runner.pages.available == runner.pages.capacity
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0
