"""Ranks that share a model write what one rank writes: by every policy, for every family, also where one fails."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import CompileMode, OnCaptureFailure, Policy
from tests.unit.runtime.conftest import write_family
from tests.unit.runtime.ranks.conftest import (
    GREEDY,
    POLICIES,
    SCORED,
    VOCABULARY,
    alone,
    assert_all_act_on,
    config,
    sampled,
)
from tests.unit.runtime.ranks.rank_forks import RankForks
from truth.families.tiny import tiny
from truth.families.trial import written


@pytest.mark.parametrize(("prefill", "decode"), sampled(*POLICIES, count=1))
def test_three_ranks_write_what_one_writes(ranks: RankForks, smollm2: Path, prefill: Policy, decode: Policy) -> None:
    """The first rank alone knows how a request chooses; all have the states that a prompt is scored by."""
    found = ranks.answer(config(smollm2, prefill, decode, tensor=3), GREEDY, SCORED)
    assert not found.failure
    wanted = alone(smollm2, GREEDY, SCORED)
    assert [told.texts for told in found.told] == [told.texts for told in wanted]
    for own, other in zip(found.told[1].scored, wanted[1].scored, strict=True):
        assert own == pytest.approx(other, abs=1e-4)
    assert found.folders == 0
    assert [one["rank"] for one in found.ranks] == [0, 1, 2]
    assert len({(one["weightsBytes"], one["kvBytes"]) for one in found.ranks}) == 1
    assert all(one["weightsBytes"] > 0 for one in found.ranks)
    if prefill is not Policy.Disabled:
        assert all(one["graphBytes"] > 0 and one["captureSeconds"] > 0 for one in found.ranks)
        assert found.graphs == {"prefill": (prefill.value, 2, "Passed"), "decode": (decode.value, 2, "Passed")}
        # Piecewise scores no prompt on a graph.
        assert (found.fallbacks > 0) is (prefill is Policy.Piecewise)


@pytest.mark.parametrize(
    ("family", "tensor", "heads"),
    sampled(
        ("qwen2", 2, {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}),
        ("qwen3", 4, {"num_attention_heads": 8, "num_key_value_heads": 2}),
        ("gemma3", 2, {"num_attention_heads": 2, "num_key_value_heads": 1}),
        count=0,
    ),
)
def test_each_family_is_divided(
    ranks: RankForks, tmp_path: Path, family: str, tensor: int, heads: dict[str, Any]
) -> None:
    """Also where ranks share a key-value head."""
    settings = {"vocab_size": VOCABULARY, "num_hidden_layers": 3, **heads}
    folder = write_family(tmp_path, family, **{"tied": settings.pop("tie_word_embeddings", True)}, **settings)
    found = ranks.answer(config(folder, Policy.Breakable, Policy.Full, tensor=tensor), GREEDY)
    assert not found.failure
    assert found.told[0].texts == alone(folder, GREEDY)[0].texts
    assert found.graphs == {"prefill": ("Breakable", 2, "Passed"), "decode": ("Full", 2, "Passed")}


@pytest.mark.parametrize("kv_heads", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_heads_that_are_normalised_together_are_divided(ranks: RankForks, tmp_path: Path, kv_heads: int) -> None:
    """Ranks add up the squares of their heads, of a shared one each; also where halves are compiled."""
    written(tiny("olmo2", vocab_size=VOCABULARY, num_key_value_heads=kv_heads), tmp_path)
    asked = config(tmp_path, Policy.Breakable, Policy.Full, tensor=2, compile=CompileMode.Inductor)
    found = ranks.answer(asked, GREEDY, as_written=True)
    assert not found.failure
    assert found.told[0].texts == alone(tmp_path, GREEDY)[0].texts
    assert found.graphs == {"prefill": ("Breakable", 2, "Passed"), "decode": ("Full", 2, "Passed")}


@pytest.mark.parametrize(
    ("model_type", "tensor", "changes"),
    sampled(
        ("phi3", 2, {"num_key_value_heads": 1}),
        ("phi3", 4, {}),
        ("glm", 2, {}),
        ("glm4", 4, {}),
        ("cohere", 2, {"use_qk_norm": True}),
        ("cohere2", 4, {}),
        ("deepseek_v2", 2, {"q_lora_rank": None}),
        ("deepseek_v2", 4, {}),
        count=2,
    ),
)
def test_families_whose_checkpoints_fuse_or_reorder_heads_are_divided(
    ranks: RankForks, tmp_path: Path, model_type: str, tensor: int, changes: dict[str, Any]
) -> None:
    """As transformers writes them: a rank has its heads of each fused matrix, in our order, also where it shares a
    key-value head."""
    written(tiny(model_type, vocab_size=VOCABULARY, **changes), tmp_path)
    found = ranks.answer(config(tmp_path, Policy.Breakable, Policy.Full, tensor=tensor), GREEDY)
    assert not found.failure
    assert found.told[0].texts == alone(tmp_path, GREEDY)[0].texts
    assert found.graphs == {"prefill": ("Breakable", 2, "Passed"), "decode": ("Full", 2, "Passed")}


@pytest.mark.parametrize(
    ("fault", "rule", "graphs"),
    sampled(
        ("capture:prefill:4@1", "CaptureFailed", {"prefill": "Disabled", "decode": "Full"}),
        ("selfcheck:decode:4@2", "SelfCheckFailed", {"prefill": "Breakable", "decode": "Disabled"}),
        ("capture-oom:prefill:16@1", "LadderMemory", {"prefill": "Breakable", "decode": "Full"}),
        count=0,
    ),
)
def test_what_one_rank_meets_at_a_start_all_act_on(
    ranks: RankForks, smollm2: Path, fault: str, rule: str, graphs: dict[str, str]
) -> None:
    assert_all_act_on(ranks, smollm2, fault, rule, graphs, tensor=3)


@pytest.mark.parametrize("shape", sampled(({"tensor": 2},), ({"pipeline": 2},), count=1))
def test_a_replay_that_one_rank_cannot_answer_for_by_a_larger_size_is_looked_into_by_all(
    ranks: RankForks, two: Path, shape: dict[str, int]
) -> None:
    """The larger sizes have run their captured code, and at the other rank their bits are right."""
    graphs = {"prefill": "Disabled", "decode": "Full"}
    fault = "selfcheck:prefill:4@1"
    assert_all_act_on(ranks, two, fault, "SelfCheckFailed", graphs, prefill_sizes=(4, 8, 12, 16), **shape)


def test_ranks_without_a_compiler_go_on_uncompiled_or_end_the_start_as_one_rank_does(
    ranks: RankForks, smollm2: Path
) -> None:
    changes: dict[str, Any] = {"compile": CompileMode.Inductor}
    asked = config(smollm2, Policy.Breakable, Policy.Full, tensor=3, **changes)
    found = ranks.answer(asked, GREEDY, uncompilable=(0, 1, 2))
    assert found.failure.startswith("CompileFailed: ")
    assert "rank 0: before cannot be compiled: KeyError: 'no working C++ compiler'" in found.failure
    changes["on_capture_failure"] = OnCaptureFailure.Degrade
    asked = config(smollm2, Policy.Breakable, Policy.Full, tensor=3, **changes)
    found = ranks.answer(asked, GREEDY, uncompilable=(2,))
    assert not found.failure
    assert found.graphs == {"prefill": ("Breakable", 2, "Passed"), "decode": ("Full", 2, "Passed")}
    assert found.rules.count("CompileFailed") == 2
    assert found.told[0].texts == alone(smollm2, GREEDY)[0].texts


@pytest.mark.slow
def test_a_start_that_may_not_degrade_names_the_rank(ranks: RankForks, smollm2: Path) -> None:
    found = ranks.answer(config(smollm2, Policy.Breakable, Policy.Full, tensor=3), GREEDY, faults="capture:decode:1@2")
    assert found.failure.startswith("CaptureFailed: rank 2: model tiny, decode size 1")


def test_a_rank_that_fails_before_its_captures_ends_the_engine_instead_of_leaving_the_others_to_wait(
    ranks: RankForks, smollm2: Path
) -> None:
    """Also where the start may degrade: it cannot vote, because the others are in a collective."""
    asked = config(smollm2, Policy.Breakable, Policy.Full, tensor=3, on_capture_failure=OnCaptureFailure.Degrade)
    found = ranks.answer(asked, GREEDY, unwarmed=1)
    assert found.failure.startswith("CaptureOutOfMemory: rank 1: rank 1 of 3 cannot go on")
    assert "before the first collective" in found.failure


@pytest.mark.parametrize(
    ("sent", "words", "at"),
    sampled(
        *(
            (sent, words, at)
            for sent, words in (
                (signal.SIGKILL, r"RankDied: rank 1 of 2 has ended at (\w+)(?:, [\w ]+)?: signal SIGKILL"),
                (
                    signal.SIGSTOP,
                    r"RankStuck: rank 1 of 2 stands still at (\w+)(?:, [\w ]+)?: no heartbeat for \d+ s",
                ),
            )
            for at in ("capture", "decode")
        ),
        count=1,
    ),
)
def test_a_rank_that_ends_or_stands_still_ends_the_engine(
    ranks: RankForks, two: Path, sent: signal.Signals, words: str, at: str
) -> None:
    silent = 3.0 if sent is signal.SIGSTOP else 20.0
    asked = config(two, Policy.Breakable, Policy.Full, tensor=2)
    found = ranks.answer(asked, GREEDY, sent=sent, at=at, silent_seconds=silent)
    said = re.fullmatch(words, found.failure)
    assert said, found
    # It may be behind the first rank, whose stage the test has seen.
    assert said[1] in {"capture": ("Loading", "Capturing"), "decode": ("SelfChecking", "Ready")}[at]
    assert found.left == 0
