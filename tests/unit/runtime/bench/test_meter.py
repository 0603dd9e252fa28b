"""A workload on a subject that only takes notes."""

import pytest

from graphpod_policy import Device
from graphpod_runtime.bench.figures.meter import Meter, Samples
from graphpod_runtime.bench.figures.workload import FULL, QUICK, Prompts, Workload

WORK = Workload((4, 9), (1, 3), max_model_len=64, prefill_chunk=16, repeats=2, short=3, long=7, prompt=5)


def test_a_round_asks_for_every_size_and_never_for_the_same_prompt_twice() -> None:
    asked: list[tuple[list[list[int]], int]] = []
    meter = Meter(lambda prompts, new: asked.append((prompts, new)), WORK, vocab=1000)
    meter.warm()
    samples = meter.round()
    shapes = [(len(prompts), len(prompts[0]), new) for prompts, new in asked]
    warm = [(1, 4, 1), (1, 9, 1), (1, 5, 2), (3, 5, 2)]
    prefill = [(1, 4, 1)] * 2 + [(1, 9, 1)] * 2
    decode = [(1, 5, 3), (3, 5, 3), (1, 5, 7), (3, 5, 7)]
    assert shapes == warm + prefill + decode
    prompts = [tuple(prompt) for batch, _ in asked for prompt in batch]
    assert len(set(prompts)) == len(prompts)
    assert {size: len(times) for size, times in samples.prefill.items()} == {4: 2, 9: 2}
    assert [sorted(times) for times in (samples.short, samples.long)] == [[1, 3], [1, 3]]


def test_rounds_add_up() -> None:
    both = Samples({4: [1.0]}, {1: [2.0]}, {}) + Samples({4: [3.0], 9: [5.0]}, {}, {1: [4.0]})
    assert both == Samples({4: [1.0, 3.0], 9: [5.0]}, {1: [2.0]}, {1: [4.0]})


@pytest.mark.parametrize("vocab", [3, 211, 150_000])
def test_prompts_stay_within_the_vocabulary(vocab: int) -> None:
    prompts = Prompts(vocab)
    assert all(0 <= token < vocab for _ in range(50) for token in prompts.of(64))


@pytest.mark.parametrize("workload", [*FULL.values(), *QUICK.values()])
def test_a_workload_fits_its_own_context(workload: Workload) -> None:
    assert workload.longest <= workload.max_model_len
    assert max(workload.prefill_tokens) <= workload.prefill_chunk


def test_the_decode_of_contract_25_is_what_full_runs() -> None:
    for workload in FULL.values():
        assert (workload.prompt, workload.short, workload.long, workload.steps) == (64, 8, 136, 128)
        assert workload.context == 136
    assert FULL[Device.Cuda].decode_batches == (1, 8, 32)


def test_other_sizes_bring_their_context_and_what_is_captured() -> None:
    changed = QUICK[Device.Cpu].changed((300,), (2,), rounds=1)
    assert changed.prefill_sizes == (128, 300)
    assert changed.decode_sizes == (2,)
    assert changed.max_model_len >= 301
    assert (changed.prefill_chunk, changed.rounds) == (300, 1)
    assert FULL[Device.Cpu].changed(None, None, None) == FULL[Device.Cpu]
