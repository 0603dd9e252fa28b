"""A request's text depends on its seed and its logits, not on what runs with it; a batch pays only for what it uses."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from graphpod_policy import Phase, Policy
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine import runner
from graphpod_runtime.engine.forward.sampling import sampler
from graphpod_runtime.engine.forward.sampling.sampler import SamplingBatch, greedy
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import Chunk, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.kernels.sampling.draw import draw_by_torch
from graphpod_runtime.wire.logit_processing import LogitProcessing
from tests.unit.runtime.conftest import random_prompts

REQUESTS = [pytest.param(105, 14, id="105"), pytest.param(200, 19, id="200", marks=pytest.mark.slow)]
"""How many, and how large a group of them can be at least that is asked together: groups of 1, 2, 3 … of them."""
TOKENS = 9
KINDS = (
    Sampling(1.0),
    Sampling(0.8, 0.95),
    Sampling(1.2, top_k=20),
    Sampling(1.5, min_p=0.05),
    Sampling(0.7, 0.9, top_k=40, min_p=0.01),
    Sampling(),
    Sampling(0.9, processing=LogitProcessing(repetition=1.4, frequency=0.3, presence=0.5)),
    Sampling(processing=LogitProcessing(bias={7: 3.0, 9: -100.0}, frequency=1.5, bad_words=[[8], [7, 7], [7, 11, 7]])),
    Sampling(1.0, 0.9, processing=LogitProcessing(allowed=list(range(2, 60)), min_tokens=5, presence=-1.0)),
)
"""Requests of a batch take turns: every batch mixes them, greedy ones included, and those whose logits depend on what
they have been answered."""
BIG = {"max_batch": 32, "decode_sizes": (1, 4, 16, 32)}


def requests(count: int, tokens: int = TOKENS) -> list[Sequence]:
    """Requests of every kind, each with a seed of its own."""
    prompts = random_prompts(count, longest=40)
    return [
        Sequence(
            str(index), prompt, len(prompt), tokens, replace(KINDS[index % len(KINDS)], seed=index), ignore_eos=True
        )
        for index, prompt in enumerate(prompts)
    ]


def texts(runner: Runner, sequences: list[Sequence]) -> dict[str, list[int]]:
    """What each request is answered when all are submitted at once; preemptions are in the runner's `preempted`."""
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, len(sequences)), runner.eos_ids)
    run_ahead = RunAhead(scheduler, runner)
    for sequence in sequences:
        scheduler.submit(sequence)
    while run_ahead.busy:
        run_ahead.turn()
    runner.preempted = scheduler.preemptions  # type: ignore[attr-defined]
    return {sequence.id: sequence.tokens[sequence.prompt_len :] for sequence in sequences}


def groups(sequences: list[Sequence]) -> Iterator[list[Sequence]]:
    """In groups of 1, 2, 3 … 32 and again."""
    first, size = 0, 1
    while first < len(sequences):
        yield sequences[first : first + size]
        first, size = first + size, size % 32 + 1


@pytest.mark.parametrize(("count", "largest"), REQUESTS)
def test_requests_have_one_text_alone_in_batches_of_1_to_32_and_preempted(
    started: Callable[..., Runner], count: int, largest: int
) -> None:
    runner = started(**BIG)
    alone: dict[str, list[int]] = {}
    for sequence in requests(count):
        alone |= texts(runner, [sequence])
    together: dict[str, list[int]] = {}
    sizes = set()
    for group in groups(requests(count)):
        sizes.add(len(group))
        together |= texts(runner, group)
    assert together == alone
    assert len(sizes) >= largest
    assert texts(runner, requests(count)) == alone  # 32 of them at once: each next to others that begin and end
    runner.pages = PageAllocator(28)
    assert texts(runner, requests(count)) == alone
    assert runner.preempted > 10  # type: ignore[attr-defined]


@pytest.mark.parametrize("modes", ["lockstep", "seats", "seats,poison"])
def test_running_ahead_changes_no_text(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, modes: str
) -> None:
    """Ends by length, by a stop token and by preemption, beside log-probabilities."""

    def asked() -> list[Sequence]:
        found = requests(60, 24)
        for index, sequence in enumerate(found):
            sequence.ignore_eos = False
            sequence.stop_ids = tuple(range(3, 3 + 4 * (index % 5)))
            sequence.wants = LogprobRequest(answer=1 if index % 7 == 0 else None)
        return found

    runner = started(**BIG)
    runner.pages = PageAllocator(60)
    expected = texts(runner, asked())
    assert len({len(text) for text in expected.values()}) > 8
    assert runner.preempted > 0  # type: ignore[attr-defined]
    monkeypatch.setenv("GRAPHPOD_DEBUG", modes)
    other = started(**BIG)
    other.pages = PageAllocator(60)
    if other._poison is not None:
        other._poison._pages = other.pages
    assert other.ahead == (modes != "lockstep")
    assert texts(other, asked()) == expected
    assert other.pages.available == runner.pages.available == 59


def test_later_passes_go_on_from_the_tokens_that_are_given(started: Callable[..., Runner]) -> None:
    """Launched before any of them has landed."""
    runner = started()
    taught = Sequence("taught", [5, 6, 7], 3, 9, pages=runner.pages.take(2))
    runner.launch(PrefillBatch((Chunk(taught, 0, 3),)), [31])
    taught.launched = 3
    runner.launch(DecodeBatch((taught,)), [32])
    taught.launched = 4
    last = runner.launch(DecodeBatch((taught,)))
    written = Sequence("written", [5, 6, 7, 31, 32], 5, 9, pages=runner.pages.take(2))
    assert runner.land(last).tokens == runner.forward(PrefillBatch((Chunk(written, 0, 5),))).tokens


def test_no_graph_and_no_prompt_in_chunks_changes_a_text(started: Callable[..., Runner]) -> None:
    expected = texts(started(**BIG), requests(24))
    for changes in (BIG, {"max_batch": 5, "prefill_chunk": 7}):
        assert texts(started(Policy.Disabled, Policy.Disabled, **changes), requests(24)) == expected


def test_a_request_without_a_seed_gets_one_when_it_is_admitted_and_keeps_it() -> None:
    first, second = (Sequence("a", [1], 1, 1, Sampling(1.0)) for _ in range(2))
    assert first.sampling.seed is not None
    assert first.sampling.seed != second.sampling.seed
    assert Sequence("a", [1], 1, 1, Sampling(1.0, seed=0)).sampling.seed == 0


def test_two_requests_without_a_seed_have_two_texts(started: Callable[..., Runner]) -> None:
    runner = started(Policy.Disabled, Policy.Disabled)
    one, other = generate(runner, [[5, 6, 7]] * 2, 12, Sampling(2.0), ignore_eos=True)
    assert one != other


def test_a_batch_in_which_nobody_samples_pays_the_argmax_it_has(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Tensor:
        raise AssertionError("a greedy batch was drawn from")

    monkeypatch.setattr(runner, "drawer_for", lambda device: refused)
    greedy_ones = [Sampling(), Sampling(0.0, 0.5, 7), Sampling(1.0, top_k=1)]
    sequences = [Sequence(str(index), [5, 6], 2, 4, one) for index, one in enumerate(greedy_ones)]
    found = texts(started(Policy.Disabled, Policy.Disabled), sequences)
    assert found["0"] == found["1"] == found["2"]


def test_rows_that_do_not_sample_are_not_drawn() -> None:
    drawn: list[int] = []

    def noting(logits: Tensor, *rest: object) -> Tensor:
        drawn.append(logits.shape[0])
        return draw_by_torch(logits, *rest)  # type: ignore[arg-type]

    members = tuple(
        Sequence(str(index), [5], 1, 4, one)
        for index, one in enumerate([Sampling(), Sampling(1.0, seed=1), Sampling(), Sampling(1.0, 0.9, seed=2)])
    )
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(1))
    positions = torch.tensor([3, 4, 5, 6])
    batch = SamplingBatch.of(members, noting, logits.device)
    tokens = batch.tokens(logits, greedy(logits), positions)
    assert drawn == [2]
    assert tokens[[0, 2]].tolist() == logits[[0, 2]].argmax(-1).tolist()
    for row in (1, 3):
        alone = SamplingBatch.of(members[row : row + 1], draw_by_torch, logits.device)
        one = slice(row, row + 1)
        assert tokens[one].tolist() == alone.tokens(logits[one], greedy(logits[one]), positions[one]).tolist()


def test_parameters_travel_only_when_the_members_change(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    right = sampler.sampling_tensors_of

    def noting(samplings: list[Sampling], device: torch.device) -> object:
        made.append(len(samplings))
        return right(samplings, device)

    runner = started(Policy.Disabled, Policy.Disabled)  # which draws in every way
    monkeypatch.setattr(sampler, "sampling_tensors_of", noting)
    short = Sequence("short", [5, 6], 2, 5, Sampling(1.0, seed=1), ignore_eos=True)
    long = Sequence("long", [7, 8], 2, 12, Sampling(1.0, seed=2), ignore_eos=True)
    texts(runner, [short, long])
    # The prompts' pass and the steps of both have the same members, then one goes on alone.
    assert made == [2, 1]
    assert runner.counters.value("graphpod_forward_passes_total", phase=Phase.Decode) == 11


def test_log_probabilities_are_of_the_rows_that_want_them(started: Callable[..., Runner]) -> None:
    """Values, in a batch of mixed wishes: those of the rows that want none are different ones."""
    prompts = random_prompts(4, shortest=5, seed=3)
    wanted = LogprobRequest(answer=2)

    def run(*indexes: int, wishes: dict[int, LogprobRequest]) -> dict[int, list[float]]:
        runner = started(Policy.Disabled, Policy.Disabled)
        scheduler = Scheduler(runner.pages, Limits.of(runner.config, 4), runner.eos_ids)
        values: dict[int, list[float]] = {index: [] for index in indexes}
        for index in indexes:
            prompt, wants = prompts[index], wishes.get(index, LogprobRequest())
            scheduler.submit(Sequence(str(index), list(prompt), len(prompt), 4, ignore_eos=True, wants=wants))
        while (batch := scheduler.next()) is not None:
            for progress in scheduler.advance(batch, runner.forward(batch)):
                if progress.logprob is not None:
                    values[int(progress.sequence.id)].append(progress.logprob.logprob)
        return values

    mixed = run(0, 1, 2, 3, wishes={1: wanted, 3: wanted})
    assert mixed[0] == mixed[2] == []
    for index in (1, 3):
        assert mixed[index] == pytest.approx(run(index, wishes={index: wanted})[index], abs=1e-4)


def test_a_seed_that_the_server_draws_is_one_that_a_client_could_give() -> None:
    seeds = [Sampling(temperature=1).seeded().seed for _ in range(64)]
    assert all(seed is not None and 0 <= seed < 2**63 for seed in seeds)
    assert len(set(seeds)) == len(seeds)
    assert Sampling(temperature=1, seed=7).seeded().seed == 7
