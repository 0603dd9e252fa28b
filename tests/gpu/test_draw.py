"""Draws on a CUDA device are those of torch's operators and of a CPU, and the host never waits for them."""

from importlib import import_module
from itertools import product
from types import ModuleType

import pytest
import torch
from torch import Tensor

from graphpod_runtime.engine.forward.sampler import Sampler, draws_of, greedy
from graphpod_runtime.engine.schedule.sequence import Sampling, Sequence
from graphpod_runtime.kernels.draw import draw, draw_by_torch
from graphpod_runtime.kernels.draws import Draws

pytestmark = pytest.mark.gpu
GPU, HOST = torch.device("cuda"), torch.device("cpu")
FILTERS = list(product((1.0, 0.9, 0.3), (0, 1, 50), (0.0, 0.02, 1.0)))
"""top_p, top_k, min_p."""


@pytest.fixture(scope="module")
def draw_triton() -> ModuleType:
    """The module can be imported only where torch's build has triton, which its CPU build has not."""
    return import_module("graphpod_runtime.kernels.draw_triton")


def batch(rows: int, vocab: int, seed: int) -> tuple[Tensor, Tensor, list[Sampling]]:
    generator = torch.Generator(GPU).manual_seed(seed)
    scale = torch.rand(rows, 1, generator=generator, device=GPU) * 5 + 0.2
    logits = torch.randn(rows, vocab, generator=generator, device=GPU) * scale
    positions = torch.randint(0, 100_000, (rows,), generator=generator, device=GPU)
    samplings = [
        Sampling(0.3 + 0.1 * (index % 12), top_p, seed * 1000 + index, top_k=top_k, min_p=min_p)
        for index in range(rows)
        for top_p, top_k, min_p in [FILTERS[(index * 7 + seed) % len(FILTERS)]]
    ]
    return logits, positions, samplings


def on_host(draws: Draws) -> Draws:
    return Draws(*(part.cpu() for part in draws[:5]), *draws[5:])


@pytest.mark.parametrize("vocab", [1009, 4096, 32000, 151936])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_token_for_one_row_by_triton_by_torch_and_on_a_cpu(
    draw_triton: ModuleType, vocab: int, dtype: torch.dtype
) -> None:
    """At most one row in 10 000 may differ, where two scores or a filter's edge lie within 1e-5 (contract 1)."""
    rows, apart = 0, 0
    for seed in range(20):
        logits, positions, samplings = batch(50, vocab, seed)
        logits, draws = logits.to(dtype), draws_of(samplings, GPU)
        fast = draw_triton.draw(logits, positions, draws)
        slow = draw_by_torch(logits, positions, draws)
        host = draw_by_torch(logits.cpu(), positions.cpu(), on_host(draws))
        apart += int(((fast != slow).cpu() | (fast.cpu() != host)).sum())
        rows += 50
    assert apart <= rows // 10_000, f"{apart} of {rows} rows"


@pytest.mark.parametrize("rows", [1, 2, 3, 16, 17, 200])
def test_a_row_draws_alone_as_in_any_batch(rows: int) -> None:
    logits, positions, samplings = batch(rows, 32000, 3)
    together = draw(logits, positions, draws_of(samplings, GPU)).tolist()
    alone = [
        int(draw(logits[at : at + 1], positions[at : at + 1], draws_of([one], GPU))) for at, one in enumerate(samplings)
    ]
    assert together == alone


def test_rows_without_a_finite_best_logit_are_told_apart_from_the_others() -> None:
    logits = torch.randn(5, 1009, device=GPU)
    logits[1, 3], logits[2], logits[3, 7] = torch.nan, -torch.inf, torch.inf
    tokens = draw(logits, torch.zeros(5, dtype=torch.int64, device=GPU), draws_of([Sampling(1.0, 0.9, 1)] * 5, GPU))
    assert [token == -1 for token in tokens.tolist()] == [False, True, True, True, False]
    assert [token == -1 for token in greedy(logits).tolist()] == [False, True, True, True, False]


def test_a_draw_never_waits_for_the_device_and_compiles_nothing_for_another_number_of_rows(
    draw_triton: ModuleType,
) -> None:
    sampler, (logits, positions, samplings) = Sampler(GPU), batch(33, 32000, 5)
    every = draws_of([Sampling(1.0, 0.9, 0, top_k=50, min_p=0.01)] * 5, GPU)
    draw(logits[:5], positions[:5], every)  # as a start does
    kernels = (draw_triton._digit, draw_triton._edge, draw_triton._scores)
    compiled = [len(kernel.device_caches[torch.cuda.current_device()][0]) for kernel in kernels]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for rows in (1, 2, 16, 32, 33):
            members = tuple(Sequence(str(at), [5], 1, 4, one) for at, one in enumerate(samplings[:rows]))
            sampler.tokens(members, logits[:rows], greedy(logits[:rows]), positions[:rows])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [len(kernel.device_caches[torch.cuda.current_device()][0]) for kernel in kernels] == compiled
