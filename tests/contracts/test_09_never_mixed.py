"""Prefill and decode never share a pass."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from graphpod_policy import Phase, Policy
from graphpod_runtime.engine.forward.inputs import inputs_of
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from tests.unit.runtime.conftest import random_prompts


@pytest.mark.parametrize("prefill_chunk", [3, 32])
def test_prompts_that_arrive_while_others_decode_get_passes_of_their_own(
    started: Callable[..., Runner], prefill_chunk: int
) -> None:
    """Chunks of three tokens give prefill passes with one row a sequence too, the shape of a decode pass."""
    runner = started(Policy.Breakable, Policy.Full)
    scheduler = Scheduler(runner.pages, Limits(128, 8, prefill_chunk, 4, 100), runner.eos_ids)
    arriving = [
        Sequence(str(index), list(prompt), len(prompt), 10, ignore_eos=True)
        for index, prompt in enumerate(random_prompts(12, longest=40))
    ]
    decoding: set[str] = set()
    phases: list[Phase] = []
    while arriving or scheduler.busy:
        if arriving and phases[-1:] != [Phase.Prefill]:
            for _ in range(2):
                scheduler.submit(arriving.pop())
        batch = scheduler.next()
        assert batch is not None
        if isinstance(batch, DecodeBatch):
            assert all(sequence.computed == len(sequence.tokens) - 1 for sequence in batch.sequences)
            assert {sequence.id for sequence in batch.sequences} <= decoding
        else:
            assert isinstance(batch, PrefillBatch)
            assert all(chunk.start == chunk.sequence.computed < chunk.end for chunk in batch.chunks)
            assert not {chunk.sequence.id for chunk in batch.chunks} & decoding
            decoding |= {chunk.sequence.id for chunk in batch.chunks if chunk.last}
        phases.append(inputs_of(batch, 4, runner._engine.device).phase)
        scheduler.advance(batch, runner.forward(batch))
    # They really took turns, and every pass was one phase's.
    assert sum(before is not after for before, after in pairwise(phases)) > 8
    for phase in Phase:
        assert runner.counters.value("graphpod_forward_passes_total", phase=phase) == phases.count(phase)
