"""Ranks and models for all tests of them. `make ranks` runs every case, `make test` a drawn sample."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from graphpod_policy import EngineConfig, OnCaptureFailure, Policy
from graphpod_runtime.engine.runner import Runner
from tests.unit.runtime.conftest import engine_config, random_prompts, write_llama
from tests.unit.runtime.ranks.asking import Ask, Told, tell
from tests.unit.runtime.ranks.rank_forks import RankForks, rank_forks

SIZES = {"prefill_sizes": (4, 16), "decode_sizes": (1, 4), "max_batch": 4, "prefill_chunk": 16}
PROMPTS = random_prompts(5, longest=40)
VOCABULARY = 216
"""Tokens: the least after those of the prompts that 2, 3 and 4 divide."""
POLICIES = [
    (Policy.Disabled, Policy.Disabled),
    (Policy.Breakable, Policy.Full),
    (Policy.Piecewise, Policy.Breakable),
]
GREEDY = Ask(PROMPTS)
SCORED = Ask(PROMPTS, temperature=0.8, prompt_logprobs=True)
SEED = 21


def sampled(*cases: Any, count: int) -> list[Any]:
    """`cases` for a parametrization, of which `make test` runs `count`."""
    drawn = Random(SEED).sample(range(len(cases)), count)
    marks = (() if index in drawn else (pytest.mark.slow,) for index in range(len(cases)))
    return [pytest.param(*case, marks=mark) for case, mark in zip(cases, marks, strict=True)]


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankForks]:
    with rank_forks() as forks:
        yield forks


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The heads of SmolLM2."""
    return write_llama(
        tmp_path_factory.mktemp("smollm2"), heads=9, kv_heads=3, vocab_size=VOCABULARY, num_hidden_layers=3
    )


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For two ranks."""
    folder = tmp_path_factory.mktemp("two")
    return write_llama(folder, heads=4, kv_heads=2, vocab_size=VOCABULARY, num_hidden_layers=2)


def config(folder: Path, prefill: Policy, decode: Policy, **changes: Any) -> EngineConfig:
    return engine_config(folder, prefill, decode, **SIZES | changes)


def alone(folder: Path, *asks: Ask, **changes: Any) -> list[Told]:
    """What one rank answers without graphs."""
    runner = Runner(config(folder, Policy.Disabled, Policy.Disabled, **changes), lambda report: None)
    runner.start()
    return [tell(runner, ask) for ask in asks]


def assert_all_act_on(
    ranks: RankForks, folder: Path, fault: str, rule: str, graphs: dict[str, str], **shape: Any
) -> None:
    """That ranks of this `shape`, one of which meets `fault` at a start, all go on with the policies `graphs`, give the
    rank by `rule`, and write what one rank writes. The fault's last character is its rank.
    """
    asked = config(folder, Policy.Breakable, Policy.Full, on_capture_failure=OnCaptureFailure.Degrade, **shape)
    found = ranks.answer(asked, GREEDY, faults=fault)
    assert not found.failure
    assert {phase: policy for phase, (policy, _, _) in found.graphs.items()} == graphs
    because = [why for one, why in zip(found.rules, found.because, strict=True) if one == rule]
    assert because
    assert all(f"rank {fault[-1]}: " in why for why in because)
    assert [told.texts for told in found.told] == [told.texts for told in alone(folder, GREEDY)]
