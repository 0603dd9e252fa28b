"""Draws on a CUDA device are those of torch's operators and of a CPU, and the host never waits for them."""

from importlib import import_module
from itertools import product
from types import ModuleType

import pytest
import torch
from torch import Tensor

from graphpod_runtime.engine.forward.sampling.sampler import Sampler, greedy, sampling_tensors_of
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.kernels.sampling.draw import draw_by_torch, drawer_for
from graphpod_runtime.kernels.sampling.sampling_tensors import SamplingTensors

pytestmark = pytest.mark.gpu
GPU, HOST = torch.device("cuda"), torch.device("cpu")
FILTERS = list(product((1.0, 0.9, 0.3), (0, 1, 50), (0.0, 0.02, 1.0)))
"""top_p, top_k, min_p."""


@pytest.fixture(scope="module")
def draw_triton() -> ModuleType:
    """The module can be imported only where torch's build has triton, which its CPU build has not."""
    return import_module("graphpod_runtime.kernels.sampling.draw_triton")


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


def on_host(draws: SamplingTensors) -> SamplingTensors:
    return SamplingTensors(*(part.cpu() for part in draws[:5]), *draws[5:])


@pytest.mark.parametrize("vocab", [1009, 4096, 32000, 151936])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_token_for_one_row_by_triton_by_torch_and_on_a_cpu(
    draw_triton: ModuleType, vocab: int, dtype: torch.dtype
) -> None:
    """At most one row in 10 000 may differ, where two scores or a filter's edge lie within 1e-5 (contract 1)."""
    rows, apart = 0, 0
    for seed in range(20):
        logits, positions, samplings = batch(50, vocab, seed)
        logits, draws = logits.to(dtype), sampling_tensors_of(samplings, GPU)
        chosen = greedy(logits)
        fast = draw_triton.TritonDraw()(logits, chosen, positions, draws)
        slow = draw_by_torch(logits, chosen, positions, draws)
        host = draw_by_torch(logits.cpu(), chosen.cpu(), positions.cpu(), on_host(draws))
        apart += int(((fast != slow).cpu() | (fast.cpu() != host)).sum())
        rows += 50
    assert apart <= rows // 10_000, f"{apart} of {rows} rows"


@pytest.mark.parametrize("listed", [64, 4096])
@pytest.mark.parametrize("kind", ["nearly equal", "equal", "all but seven excluded", "coarse"])
def test_rows_whose_edge_many_tokens_share_are_drawn_as_by_torch(
    draw_triton: ModuleType, monkeypatch: pytest.MonkeyPatch, kind: str, listed: int
) -> None:
    """With a short list most rows have more tokens between their bounds than it can hold."""
    monkeypatch.setattr(draw_triton, "LISTED", listed)
    logits, positions, samplings = batch(54, 32000, 7)
    match kind:
        case "nearly equal":
            logits = 1 + logits * 1e-4
        case "equal":
            logits = torch.ones_like(logits)
        case "all but seven excluded":
            logits[:, 7:] = -torch.inf
        case _:
            logits = logits.round()
    draws, chosen = sampling_tensors_of(samplings, GPU), greedy(logits)
    fast = draw_triton.TritonDraw()(logits, chosen, positions, draws)
    assert torch.equal(fast, draw_by_torch(logits, chosen, positions, draws))


@pytest.mark.parametrize("rows", [1, 2, 3, 16, 17, 200])
def test_a_row_draws_alone_as_in_any_batch(rows: int) -> None:
    draw, (logits, positions, samplings) = drawer_for(GPU), batch(rows, 32000, 3)
    chosen = greedy(logits)
    together = draw(logits, chosen, positions, sampling_tensors_of(samplings, GPU)).tolist()
    alone = [
        int(draw(logits[own], chosen[own], positions[own], sampling_tensors_of([one], GPU)))
        for one, own in ((one, slice(at, at + 1)) for at, one in enumerate(samplings))
    ]
    assert together == alone


def test_rows_without_a_finite_best_logit_are_told_apart_from_the_others() -> None:
    logits = torch.randn(5, 1009, device=GPU)
    logits[1, 3], logits[2], logits[3, 7] = torch.nan, -torch.inf, torch.inf
    positions, draws = (
        torch.zeros(5, dtype=torch.int64, device=GPU),
        sampling_tensors_of([Sampling(1.0, 0.9, 1)] * 5, GPU),
    )
    tokens = drawer_for(GPU)(logits, greedy(logits), positions, draws)
    assert [token == -1 for token in tokens.tolist()] == [False, True, True, True, False]
    assert [token == -1 for token in greedy(logits).tolist()] == [False, True, True, True, False]


def test_a_draw_never_waits_for_the_device_and_compiles_nothing_for_another_number_of_rows(
    draw_triton: ModuleType,
) -> None:
    draw = drawer_for(GPU)
    sampler, (logits, positions, samplings) = Sampler(draw, GPU), batch(33, 32000, 5)
    for sampling in (Sampling(1.0, seed=0), Sampling(1.0, 0.9, 0, top_k=50, min_p=0.01)):  # as a start does
        draw(logits[:5], greedy(logits[:5]), positions[:5], sampling_tensors_of([sampling] * 5, GPU))
    own = draw_triton.kernels
    kernels = (own.fill_histogram, own.find_bounds, own.score_blocks, own.decide)
    compiled = [len(kernel.device_caches[torch.cuda.current_device()][0]) for kernel in kernels]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for rows in (1, 2, 16, 32, 33):
            members = tuple(Sequence(str(at), [5], 1, 4, one) for at, one in enumerate(samplings[:rows]))
            sampler.batch(members).tokens(logits[:rows], greedy(logits[:rows]), positions[:rows])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [len(kernel.device_caches[torch.cuda.current_device()][0]) for kernel in kernels] == compiled
