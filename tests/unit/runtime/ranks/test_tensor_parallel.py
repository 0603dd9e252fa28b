"""Ranks that share a model write what one rank writes: by every policy, for every family, also where one fails."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import EngineConfig, OnCaptureFailure, Policy
from graphpod_runtime.engine.offline import answers, generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import LogprobRequest
from tests.unit.runtime.conftest import engine_config, random_prompts, write_family, write_llama
from tests.unit.runtime.ranks.rank_forks import RankForks, rank_forks

SIZES = {"prefill_sizes": (4, 16), "decode_sizes": (1, 4), "max_batch": 4, "prefill_chunk": 16}
PROMPTS = random_prompts(5, longest=40)
VOCABULARY = 216
"""Tokens: the least after those of the prompts that 2, 3 and 4 divide."""


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankForks]:
    with rank_forks() as forks:
        yield forks


def config(folder: Path, prefill: Policy, decode: Policy, tensor: int, **changes: Any) -> EngineConfig:
    return engine_config(folder, prefill, decode, tensor=tensor, **SIZES | changes)


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The heads of SmolLM2."""
    return write_llama(
        tmp_path_factory.mktemp("smollm2"), heads=9, kv_heads=3, vocab_size=VOCABULARY, num_hidden_layers=2
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For two ranks."""
    folder = tmp_path_factory.mktemp("two")
    return write_llama(folder, heads=4, kv_heads=2, vocab_size=VOCABULARY, num_hidden_layers=2)


def alone(folder: Path, **more: Any) -> list[list[int]]:
    """What one rank writes without graphs."""
    runner = Runner(config(folder, Policy.Disabled, Policy.Disabled, 1), lambda report: None)
    runner.start()
    return generate(runner, PROMPTS, 12, ignore_eos=True, **more)


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [
        (Policy.Disabled, Policy.Disabled),
        (Policy.Breakable, Policy.Full),
        (Policy.Piecewise, Policy.Breakable),
    ],
)
def test_three_ranks_write_what_one_writes(ranks: RankForks, smollm2: Path, prefill: Policy, decode: Policy) -> None:
    found = ranks.answer(config(smollm2, prefill, decode, 3), PROMPTS)
    assert not found.failure
    assert found.texts == alone(smollm2)
    assert found.folders == 0
    if prefill is not Policy.Disabled:
        assert found.graphs == {"prefill": (prefill.value, 2, "Passed"), "decode": (decode.value, 2, "Passed")}
        assert found.fallbacks == 0


@pytest.mark.parametrize(
    ("family", "tensor", "heads"),
    [
        ("qwen2", 2, {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}),
        ("qwen3", 4, {"num_attention_heads": 8, "num_key_value_heads": 2}),
        ("gemma3", 2, {"num_attention_heads": 2, "num_key_value_heads": 1}),
    ],
)
def test_each_family_is_divided(
    ranks: RankForks, tmp_path: Path, family: str, tensor: int, heads: dict[str, Any]
) -> None:
    """Also where ranks share a key-value head."""
    settings = {"vocab_size": VOCABULARY, "num_hidden_layers": 3, **heads}
    folder = write_family(tmp_path, family, **{"tied": settings.pop("tie_word_embeddings", True)}, **settings)
    found = ranks.answer(config(folder, Policy.Breakable, Policy.Full, tensor), PROMPTS)
    assert not found.failure
    assert found.texts == alone(folder)
    assert found.graphs == {"prefill": ("Breakable", 2, "Passed"), "decode": ("Full", 2, "Passed")}


def test_what_is_drawn_and_what_prompts_score_are_the_same(ranks: RankForks, smollm2: Path) -> None:
    """The first rank alone knows how a request chooses; all have the states that a prompt is scored by."""
    found = ranks.answer(
        config(smollm2, Policy.Breakable, Policy.Full, 3), PROMPTS, temperature=0.8, prompt_logprobs=True
    )
    runner = Runner(config(smollm2, Policy.Disabled, Policy.Disabled, 1), lambda report: None)
    runner.start()
    wanted = answers(runner, PROMPTS, 12, Sampling(0.8, seed=7), LogprobRequest(prompt=0), ignore_eos=True)
    assert found.texts == [list(one.tokens) for one in wanted]
    for own, other in zip(found.scored, wanted, strict=True):
        assert own == pytest.approx([one.logprob for one in other.prompt_logprobs], abs=1e-4)


@pytest.mark.parametrize(
    ("fault", "rule", "graphs"),
    [
        ("capture:prefill:4@1", "CaptureFailed", {"prefill": "Disabled", "decode": "Full"}),
        ("selfcheck:decode:4@2", "SelfCheckFailed", {"prefill": "Breakable", "decode": "Disabled"}),
        ("capture-oom:prefill:16@1", "LadderMemory", {"prefill": "Breakable", "decode": "Full"}),
    ],
)
def test_what_one_rank_meets_at_a_start_all_act_on(
    ranks: RankForks, smollm2: Path, fault: str, rule: str, graphs: dict[str, str]
) -> None:
    asked = config(smollm2, Policy.Breakable, Policy.Full, 3, on_capture_failure=OnCaptureFailure.Degrade)
    found = ranks.answer(asked, PROMPTS, faults=fault)
    assert not found.failure
    assert {phase: policy for phase, (policy, _, _) in found.graphs.items()} == graphs
    because = [why for one, why in zip(found.rules, found.because, strict=True) if one == rule]
    assert because
    assert all(f"rank {fault[-1]}: " in why for why in because)
    assert found.texts == alone(smollm2)


def test_a_start_that_may_not_degrade_names_the_rank(ranks: RankForks, smollm2: Path) -> None:
    found = ranks.answer(config(smollm2, Policy.Breakable, Policy.Full, 3), PROMPTS, faults="capture:decode:1@2")
    assert found.failure.startswith("CaptureFailed: rank 2: model tiny, decode size 1")


def test_a_rank_that_fails_before_its_captures_ends_the_engine_instead_of_leaving_the_others_to_wait(
    ranks: RankForks, smollm2: Path
) -> None:
    """Also where the start may degrade: it cannot vote, because the others are in a collective."""
    asked = config(smollm2, Policy.Breakable, Policy.Full, 3, on_capture_failure=OnCaptureFailure.Degrade)
    found = ranks.answer(asked, PROMPTS, unwarmed=1)
    assert found.failure.startswith("CaptureOutOfMemory: rank 1: rank 1 of 3 cannot go on")
    assert "before the first collective" in found.failure


@pytest.mark.parametrize("at", ["capture", "decode"])
@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (signal.SIGKILL, r"RankDied: rank 1 of 2 has ended at (\w+)(?:, [\w ]+)?: signal SIGKILL"),
        (signal.SIGSTOP, r"RankStuck: rank 1 of 2 stands still at (\w+)(?:, [\w ]+)?: no beat of its heart for \d+ s"),
    ],
)
def test_a_rank_that_ends_or_stands_still_ends_the_engine(
    ranks: RankForks, two: Path, sent: signal.Signals, words: str, at: str
) -> None:
    found = ranks.answer(config(two, Policy.Breakable, Policy.Full, 2), PROMPTS, sent=sent, at=at)
    said = re.fullmatch(words, found.failure)
    assert said, found
    # It may be behind the first rank, whose stage the test has seen.
    assert said[1] in {"capture": ("Loading", "Capturing"), "decode": ("SelfChecking", "Ready")}[at]
    assert found.left == 0
