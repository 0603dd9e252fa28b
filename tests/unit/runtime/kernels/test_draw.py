"""Draws follow the softmax that the filters leave, in their order, and depend on nothing but row, parameters, seed and
position."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphpod_runtime.engine.forward.sampling.sampler import greedy, sampling_tensors_of
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.kernels.sampling import draw as kernels
from graphpod_runtime.kernels.sampling.draw import draw_by_torch, exponentials
from tests.tries import tries

HOST = torch.device("cpu")


def sampled(logits: Tensor, *samplings: Sampling, positions: list[int] | None = None) -> list[int]:
    """A token for each of `samplings`, from the one row logits [vocab] or a row of its own of logits [rows, vocab]."""
    rows = logits.expand(len(samplings), -1)
    at = torch.tensor(positions if positions is not None else [0] * len(samplings))
    tokens: list[int] = draw_by_torch(rows, greedy(rows), at, sampling_tensors_of(list(samplings), HOST)).tolist()
    return tokens


def filtered(logits: Tensor, sampling: Sampling) -> Tensor:
    """The distribution by its definition: sorted, in double precision, one filter after the other."""
    scaled = logits.double() / sampling.temperature
    order = scaled.argsort(descending=True, stable=True)
    probabilities = torch.softmax(scaled[order], 0)
    if sampling.top_k:
        probabilities[sampling.top_k :] = 0
        probabilities /= probabilities.sum()
    if sampling.top_p < 1:
        before = probabilities.cumsum(0) - probabilities
        probabilities[before >= sampling.top_p] = 0
        probabilities /= probabilities.sum()
    probabilities[probabilities < sampling.min_p * probabilities[0]] = 0
    return torch.zeros_like(probabilities).scatter(0, order, probabilities / probabilities.sum())


SAMPLINGS = [
    Sampling(1.0),
    Sampling(0.5),
    Sampling(1.0, top_k=7),
    Sampling(1.0, 0.8),
    Sampling(1.0, min_p=0.1),
    Sampling(0.7, 0.9, top_k=12),
    Sampling(1.3, 0.95, top_k=30, min_p=0.02),
]
TRIES = 100_000
BATCH = 10_000


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_draws_have_the_filtered_softmax(sampling: Sampling) -> None:
    """Chi-square of 100 000 draws, half of them by seed and half by position; its bound is crossed once in 10 000."""
    logits = torch.randn(61, generator=torch.Generator().manual_seed(2)) * 2
    expected = filtered(logits, sampling)
    counts = torch.zeros(61)
    for first in range(0, TRIES, BATCH):
        by_seed = first < TRIES / 2
        seeds = range(first, first + BATCH) if by_seed else (77,)
        how = [replace(sampling, seed=seed) for seed in seeds] * (1 if by_seed else BATCH)
        positions = [5] * BATCH if by_seed else list(range(first, first + BATCH))
        tokens = torch.tensor(sampled(logits, *how, positions=positions))
        counts += torch.bincount(tokens, minlength=61)
    assert counts[expected == 0].sum() == 0, "a token that the filters cut was drawn"
    wanted = expected * TRIES
    rare = wanted < 10  # together one cell: chi-square needs some draws in each
    seen = torch.cat((counts[~rare], counts[rare].sum()[None])).double()
    due = torch.cat((wanted[~rare], wanted[rare].sum()[None]))
    seen, due = seen[due > 0], due[due > 0]
    statistic = float(((seen - due) ** 2 / due).sum())
    freedom = len(due) - 1
    # Wilson and Hilferty's approximation of the quantile; 3.72 deviations are one in 10 000.
    bound = freedom * (1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom))) ** 3
    assert statistic < bound


def test_positions_of_one_seed_draw_apart_and_so_do_seeds_of_one_position() -> None:
    logits = torch.zeros(1000)
    along = sampled(logits, *[Sampling(1.0, seed=3)] * 200, positions=list(range(200)))
    across = sampled(logits, *[Sampling(1.0, seed=seed) for seed in range(200)])
    for tokens in (along, across):
        assert len(set(tokens)) > 150  # 181 of 200 on average
    assert along != across


def test_a_seed_counts_with_all_its_64_bits() -> None:
    logits = torch.zeros(100_000)
    seeds = [0, 1, 1 << 32, 1 << 62, -1, -(1 << 63), (1 << 63) - 1]
    assert len(set(sampled(logits, *(Sampling(1.0, seed=seed) for seed in seeds)))) == len(seeds)


def test_top_p_cuts_what_the_temperature_made() -> None:
    """0.64, 0.24, 0.09, 0.03 at temperature 1; 0.35, 0.27, 0.21, 0.17 at 4."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])

    def reached(temperature: float) -> set[int]:
        return set(sampled(logits, *(Sampling(temperature, 0.7, seed) for seed in range(300))))

    assert reached(1.0) == {0, 1}
    assert reached(4.0) == {0, 1, 2}


def test_top_p_is_of_what_top_k_left_and_min_p_of_the_likeliest() -> None:
    """0.4, 0.3, 0.2, 0.1. Of the first two, 0.57 is the first one's share."""
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()

    def reached(**filters: float) -> set[int]:
        return set(sampled(logits, *(Sampling(1.0, seed=seed, **filters) for seed in range(200))))  # type: ignore[arg-type]

    assert reached(top_p=0.5) == {0, 1}
    assert reached(top_p=0.5, top_k=2) == {0}
    assert reached(min_p=0.6) == {0, 1}
    assert reached(min_p=0.3) == {0, 1, 2}
    assert reached(min_p=0.6, top_p=0.95) == {0, 1}


def test_tokens_that_are_tied_at_an_edge_stay_together() -> None:
    logits = torch.tensor([0.0, 3.0, 1.0, 1.0, 1.0, 0.0])
    for filters in ({"top_k": 2}, {"top_p": 0.75}, {"min_p": math.exp(-2) * 0.999}):
        seeds = (Sampling(1.0, seed=seed, **filters) for seed in range(300))  # type: ignore[arg-type]
        assert set(sampled(logits, *seeds)) == {1, 2, 3, 4}


@pytest.mark.parametrize("temperature", [1e-45, 1e-5, 1e-3])
def test_a_tiny_temperature_draws_the_likeliest(temperature: float) -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1)) * 20
    tokens = sampled(logits, *(Sampling(temperature, seed=seed) for seed in range(200)))
    assert set(tokens) == {int(logits.argmax())}


def test_a_huge_temperature_draws_any_token_but_the_impossible() -> None:
    logits = torch.tensor([30.0, -30.0, -torch.inf, 0.0])
    tokens = sampled(logits, *(Sampling(1e38, seed=seed) for seed in range(300)))
    assert set(tokens) == {0, 1, 3}


def test_the_smallest_top_p_and_top_k_of_one_leave_the_likeliest() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    for filters in ({"top_p": 5e-324}, {"top_k": 1}, {"min_p": 1.0}):
        seeds = (Sampling(2.0, seed=seed, **filters) for seed in range(100))  # type: ignore[arg-type]
        assert set(sampled(logits, *seeds)) == {int(logits.argmax())}


def test_the_edge_of_min_p_is_the_bits_of_a_float_that_is_not_negative() -> None:
    """Kernels compare bits, and those of -0 are negative: min_p 1 would cut every token."""
    edges = sampling_tensors_of(
        [Sampling(1.0, seed=1, min_p=min_p) for min_p in (1.0, 0.5, 1e-300, 0.0)], HOST
    ).farthest
    assert edges.tolist() == [0.0, pytest.approx(0.693147), pytest.approx(690.776), torch.inf]
    assert (edges.view(torch.int32) >= 0).all()


def test_every_single_precision_exponential_is_finite_and_above_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in (0, 1, 0x7FFFFFFF, 0xFFFFFF7F, 0xFFFFFFFF):
        monkeypatch.setattr(kernels, "philox", lambda counter, key, word=word: (torch.full((1, 2), word),) * 4)
        numbers = exponentials(torch.tensor([1]), torch.tensor([1]), 7)
        assert numbers.shape == (1, 7)
        assert (numbers > 0).all()
        assert numbers.isfinite().all()


def test_exponentials_have_mean_and_deviation_one_and_reach_far_below() -> None:
    numbers = exponentials(torch.arange(40), torch.arange(40), 50_000)
    assert float(numbers.mean()) == pytest.approx(1, abs=0.005)
    assert float(numbers.std()) == pytest.approx(1, abs=0.005)
    assert float(numbers.min()) < 5e-6


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_row_that_is_not_finite_yields_no_token_and_spoils_no_other(value: float) -> None:
    logits = torch.randn(4, 30, generator=torch.Generator().manual_seed(3))
    how = [Sampling(1.0, 0.9, seed=seed, top_k=9, min_p=0.01) for seed in range(4)]
    clean = sampled(logits, *how)
    logits[1, 7] = value
    logits[2] = -torch.inf
    assert sampled(logits, *how) == [clean[0], -1, -1, clean[3]]


HOW = st.builds(
    Sampling,
    temperature=st.sampled_from([0.3, 1.0, 1.9]),
    top_p=st.sampled_from([0.2, 0.9, 1.0]),
    seed=st.integers(-(2**63), 2**63 - 1),
    top_k=st.sampled_from([0, 2, 40, 10_000]),
    min_p=st.sampled_from([0.0, 0.05, 0.9]),
)


@tries(60)
@given(st.lists(st.tuples(HOW, st.integers(0, 4000)), min_size=1, max_size=9), st.integers(0, 99), st.booleans())
def test_a_row_draws_the_same_alone_and_beside_any_others(
    rows: list[tuple[Sampling, int]], seed: int, narrow: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(len(rows), 203, generator=generator) * 4).to(torch.bfloat16 if narrow else torch.float32)
    how, positions = [sampling for sampling, _ in rows], [position for _, position in rows]
    together = sampled(logits, *how, positions=positions)
    for index, (sampling, position) in enumerate(rows):
        assert sampled(logits[index], sampling, positions=[position]) == [together[index]]


def test_many_rows_are_drawn_in_slices_of_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(10, 100, generator=torch.Generator().manual_seed(5))
    how = [Sampling(1.0, 0.9, seed=seed) for seed in range(10)]
    positions = list(range(10))
    expected = sampled(logits, *how, positions=positions)
    monkeypatch.setattr(kernels, "WORKING_BYTES", 4 * 100 * 3)
    sizes: list[int] = []
    whole = kernels._draw

    def noting(rows: Tensor, *rest: object) -> Tensor:
        sizes.append(rows.shape[0])
        return whole(rows, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(kernels, "_draw", noting)
    assert sampled(logits, *how, positions=positions) == expected
    assert sizes == [3, 3, 3, 1]
