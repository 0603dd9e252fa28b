"""A serving step waits for the device once, by an event; and a pass ahead changes no text."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphpod_policy import CompileMode, Policy
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.kernels.rows.seat_rows import TorchSeatRows, seat_rows_for
from graphpod_runtime.kernels.rows.seat_rows_contract import LENGTH, PAGES, StepRows
from tests.unit.runtime.conftest import random_prompts

CUDA = torch.device("cuda", 0)
FLASHINFER = {"dtype": "bfloat16", "page_size": 16, "kv_cache_bytes": 64 << 20, "max_model_len": 256}
KINDS = (Sampling(), Sampling(0.8, 0.95, seed=3), Sampling(1.2, top_k=20, min_p=0.01, seed=4))


@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
@pytest.mark.parametrize("attention", ["flashinfer", "torch"])
def test_a_serving_step_waits_for_the_device_only_by_its_event(
    started: Callable[..., Runner], llama_folder: Path, wide_folder: Path, decode: Policy, attention: str
) -> None:
    """Steps of greedy and sampling requests, some with log-probabilities, across pages and ends."""
    settings = {"folder": wide_folder, **FLASHINFER} if attention == "flashinfer" else {"folder": llama_folder}
    runner = started(Policy.Breakable, decode, **settings)
    assert attention in runner.engine.attention.name
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, 8), runner.eos_ids)
    run_ahead = RunAhead(scheduler, runner)
    for index, prompt in enumerate(random_prompts(8, shortest=5, longest=30)):
        wants = LogprobRequest(answer=2 if index % 4 == 0 else None)
        new = 20 + 5 * index
        scheduler.submit(Sequence(str(index), prompt, len(prompt), new, KINDS[index % 3], ignore_eos=True, wants=wants))
    while scheduler.waiting or scheduler._prompts.under_way:
        run_ahead.turn()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(40):
            run_ahead.turn()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    while run_ahead.busy:
        run_ahead.turn()
    assert scheduler.kv.available == runner.pages.capacity


@pytest.mark.parametrize("compile", [CompileMode.Nothing, CompileMode.Inductor])
@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
def test_flashinfer_a_pass_ahead_gives_the_texts_of_lockstep(
    started: Callable[..., Runner],
    wide_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    decode: Policy,
    compile: CompileMode,
) -> None:
    """The same batches in the same order, so the same bits: 16-bit logits depend on the batch."""
    settings = {"folder": wide_folder, "compile": compile, **FLASHINFER}
    prompts = random_prompts(8, longest=100)
    monkeypatch.setenv("GRAPHPOD_DEBUG", "lockstep")
    expected = generate(started(Policy.Breakable, decode, **settings), prompts, 40, ignore_eos=True)
    monkeypatch.setenv("GRAPHPOD_DEBUG", "seats")
    assert generate(started(Policy.Breakable, decode, **settings), prompts, 40, ignore_eos=True) == expected
    monkeypatch.setenv("GRAPHPOD_DEBUG", "")
    assert generate(started(Policy.Breakable, decode, **settings), prompts, 40, ignore_eos=True) == expected


@pytest.mark.parametrize(("rows", "count"), [(3, 1), (3, 3), (130, 70), (256, 256)])
@pytest.mark.parametrize("whole", [False, True])
def test_one_launch_reads_and_keeps_the_rows_of_a_step_as_torch_does(rows: int, count: int, whole: bool) -> None:
    """As many rows as a program has, fewer and more; a token that is none; pages of the widest table."""
    kernels = seat_rows_for(CUDA)
    assert not isinstance(kernels, TorchSeatRows)
    generator = torch.Generator().manual_seed(rows + count)
    state = torch.randint(1, 50, (2 * rows, PAGES + 20), generator=generator)
    state[:, LENGTH] = torch.randint(1, 320, (2 * rows,), generator=generator)
    seats = torch.randperm(2 * rows, generator=generator)[:count].to(CUDA)
    tokens = torch.randint(-1, 9, (count,), generator=generator).to(CUDA)
    results = []
    for one in (kernels, TorchSeatRows()):
        own = state.to(CUDA, copy=True)
        buffers = (torch.full((rows,), 77, device=CUDA) for _ in range(4))
        into = StepRows(*buffers, torch.full((rows, 20), 77, device=CUDA))
        one.read(own, seats, 16, into, whole=whole)
        one.keep(own, seats, tokens)
        # What lies behind a row's tokens is of no interest where only those are read.
        used = torch.arange(20, device=CUDA) < -(-into.lengths[:, None] // 16)
        results.append((own, *into[:4], into.tables if whole else into.tables.masked_fill(~used, 0)))
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))
