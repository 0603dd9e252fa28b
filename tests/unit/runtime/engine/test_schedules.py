"""The scheduler drives the real runner: whatever the schedule, each sequence gets the tokens it gets alone."""

import random
from collections.abc import Callable

import pytest

from graphpod_policy import Policy
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.scheduler import Limits, Scheduler
from graphpod_runtime.engine.sequence import Sequence
from tests.unit.runtime.conftest import random_prompts


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [(Policy.Breakable, Policy.Full), (Policy.Breakable, Policy.Breakable), (Policy.Piecewise, Policy.Full)],
)
@pytest.mark.parametrize("prefill_chunk", [3, 32])
def test_late_arrivals_aborts_preemptions_and_reused_pages_change_no_token(
    started: Callable[..., Runner], prefill: Policy, decode: Policy, prefill_chunk: int
) -> None:
    """Chunks of three tokens also give prefill passes with one row a sequence, the shape of a decode pass."""
    choose = random.Random(prefill_chunk)
    lengths = [choose.randint(1, 30) for _ in range(24)]
    prompts = random_prompts(24, longest=60)
    eager = started(Policy.Disabled, Policy.Disabled)
    alone = [generate(eager, [prompt], length)[0] for prompt, length in zip(prompts, lengths, strict=True)]

    runner = started(prefill, decode)
    runner.pages = PageAllocator(36)
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
