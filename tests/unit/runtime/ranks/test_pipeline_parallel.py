"""Stages of a pipeline write what one rank writes: by every policy, for every family, also where one fails."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import CompileMode, Policy
from tests.unit.runtime.conftest import random_prompts, write_family, write_llama
from tests.unit.runtime.front.conftest import byte_tokenizer
from tests.unit.runtime.ranks.asking import Ask
from tests.unit.runtime.ranks.conftest import (
    GREEDY,
    POLICIES,
    PROMPTS,
    SCORED,
    VOCABULARY,
    alone,
    assert_all_act_on,
    config,
    sampled,
)
from tests.unit.runtime.ranks.rank_forks import Answer, RankForks
from truth.families.tiny import tiny
from truth.families.trial import written

ONE = Ask(PROMPTS[:1])
ENDING = Ask([prompt[:1] for prompt in random_prompts(12, longest=30)], max_tokens=1)
"""Three times as many as decode together, and all end with the pass of their prompt."""
EIGHT = Ask(random_prompts(8, longest=30), temperature=0.7)
PREFIXES = Ask([PROMPTS[0], PROMPTS[0] + PROMPTS[1][:9]], prefixes=True)
POOLED = Ask(PROMPTS, max_tokens=1, pools=True)
PAGE = 4
ROOM = 16
"""Pages of a cache in which four sequences of these have no room."""


@pytest.fixture(scope="session")
def nine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine layers, the heads of SmolLM2."""
    folder = tmp_path_factory.mktemp("nine")
    return write_llama(folder, heads=9, kv_heads=3, vocab_size=VOCABULARY, num_hidden_layers=9)


def texts(found: Answer) -> list[list[list[int]]]:
    return [told.texts for told in found.told]


@pytest.mark.parametrize(
    ("stages", "prefill", "decode"),
    sampled(*((stages, *policies) for stages in (2, 3) for policies in POLICIES), count=1),
)
def test_stages_write_what_one_rank_writes(
    ranks: RankForks, nine: Path, stages: int, prefill: Policy, decode: Policy
) -> None:
    """Nine layers over two stages are five and four: no stage is taken for a model whose layers are missing."""
    layers = {2: (5, 4), 3: (3, 3, 3)}[stages]
    page = 2 * layers[0] * PAGE * 3 * 16 * 4  # keys and values of the stage with most layers, 3 heads, float32
    changes = {"max_model_len": 64, "kv_cache_bytes": ROOM * page}
    asks = GREEDY, ONE, EIGHT, SCORED, POOLED, ENDING, PREFIXES
    found = ranks.answer(config(nine, prefill, decode, pipeline=stages, **changes), *asks)
    assert not found.failure
    wanted = alone(nine, *asks, max_model_len=64)
    assert texts(found) == [told.texts for told in wanted]
    for own, other in zip(found.told[3].scored, wanted[3].scored, strict=True):
        assert own == pytest.approx(other, abs=1e-4)
    for own, other in zip(found.told[4].pooled, wanted[4].pooled, strict=True):
        assert own == pytest.approx(other, abs=1e-4)
    assert found.layers == layers
    assert found.kv_pages == ROOM
    assert "UnknownLayers" not in found.rules
    assert sum(told.preemptions for told in found.told) > 0
    assert found.told[6].cached == wanted[6].cached > 0
    assert found.folders == 0
    if prefill is not Policy.Disabled:
        assert found.graphs == {"prefill": (prefill.value, 2, "Passed"), "decode": (decode.value, 2, "Passed")}
        # Piecewise scores no prompt on a graph.
        assert (found.fallbacks > 0) is (prefill is Policy.Piecewise)
    # So many stages have work at the same time, and sequences decode in as many batches; one runs ahead of itself.
    assert [told.ahead for told in found.told[:3]] == [stages, 2, stages]
    assert max(found.told[0].batches) <= -(-4 // stages)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [2, 3])
def test_grammars_penalties_and_logprobs_are_those_of_one_rank(ranks: RankForks, tmp_path: Path, stages: int) -> None:
    """Their tokens are chosen when the tokens before are known on the host, which another pass may precede."""
    ask = Ask(grammars=16)
    mixed = Ask(PROMPTS, prompt_logprobs=True, grammars=4)
    write_llama(tmp_path, heads=6, kv_heads=3, vocab_size=300, eos_token_id=256, max_position_embeddings=512)
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    found = ranks.answer(config(tmp_path, Policy.Breakable, Policy.Full, pipeline=stages), ask, mixed)
    assert not found.failure
    wanted = alone(tmp_path, ask, mixed)
    assert texts(found) == [told.texts for told in wanted]
    for own, other in zip(found.told[1].scored, wanted[1].scored, strict=True):
        assert own == pytest.approx(other, abs=1e-4)
    assert found.told[0].ahead == stages


@pytest.mark.slow
@pytest.mark.parametrize("stages", [2, 3])
def test_an_abort_with_passes_in_flight_changes_no_other_text(ranks: RankForks, smollm2: Path, stages: int) -> None:
    found = ranks.answer(
        config(smollm2, Policy.Breakable, Policy.Full, pipeline=stages), Ask(PROMPTS, aborted=1), GREEDY, modes="seats"
    )
    assert not found.failure
    (wanted,) = alone(smollm2, GREEDY)
    told = found.told[0].texts
    assert len(told[1]) == 3
    assert told[1] == wanted.texts[1][:3]
    assert told[:1] + told[2:] == wanted.texts[:1] + wanted.texts[2:]
    assert found.told[1].texts == wanted.texts


@pytest.mark.slow
@pytest.mark.parametrize("tensor", [1, 2])
def test_addresses_stay_and_devices_know_what_hosts_know(ranks: RankForks, two: Path, tensor: int) -> None:
    asks = GREEDY, EIGHT, SCORED, POOLED, PREFIXES
    asked = config(two, Policy.Breakable, Policy.Full, pipeline=2, tensor=tensor)
    found = ranks.answer(asked, *asks, modes="addresses,seats")
    assert not found.failure
    assert texts(found) == [told.texts for told in alone(two, *asks)]


@pytest.mark.parametrize(("model_type", "tensor"), sampled(("deepseek_v2", 1), ("glm4", 2), ("cohere2", 2), count=1))
def test_families_whose_checkpoints_fuse_or_reorder_heads_have_stages(
    ranks: RankForks, tmp_path: Path, model_type: str, tensor: int
) -> None:
    """Also where the ranks of a stage divide them."""
    written(tiny(model_type, vocab_size=VOCABULARY), tmp_path)
    asked = config(tmp_path, Policy.Breakable, Policy.Full, pipeline=2, tensor=tensor)
    found = ranks.answer(asked, GREEDY)
    assert not found.failure
    assert texts(found) == [alone(tmp_path, GREEDY)[0].texts]
    assert found.graphs == {"prefill": ("Breakable", 2, "Passed"), "decode": ("Full", 2, "Passed")}


@pytest.mark.parametrize(
    ("family", "stages", "settings"),
    sampled(
        ("qwen2", 2, {"tied": False}),
        ("qwen3", 3, {}),
        ("gemma3", 2, {"num_hidden_layers": 4}),
        count=1,
    ),
)
def test_each_family_has_stages(
    ranks: RankForks, tmp_path: Path, family: str, stages: int, settings: dict[str, Any]
) -> None:
    """Also where layers differ, and where the head is no copy of the embedding."""
    folder = write_family(tmp_path, family, **{"vocab_size": VOCABULARY, **settings})
    found = ranks.answer(config(folder, Policy.Breakable, Policy.Full, pipeline=stages), GREEDY)
    assert not found.failure
    assert texts(found) == [alone(folder, GREEDY)[0].texts]
    assert found.graphs == {"prefill": ("Breakable", 2, "Passed"), "decode": ("Full", 2, "Passed")}


@pytest.mark.parametrize(
    ("prefill", "as_written"),
    [
        (Policy.Breakable, True),
        pytest.param(Policy.Piecewise, True, marks=pytest.mark.slow),
        pytest.param(Policy.Piecewise, False, marks=pytest.mark.slow),
    ],
)
def test_stages_compile_what_each_has(ranks: RankForks, smollm2: Path, prefill: Policy, as_written: bool) -> None:
    """All ranks vote on each function, and none waits for states meanwhile. Stages of two layers and of one have three
    pieces and two."""
    asked = config(smollm2, prefill, Policy.Full, pipeline=2, compile=CompileMode.Inductor)
    found = ranks.answer(asked, GREEDY, as_written=as_written)
    assert not found.failure
    assert found.graphs == {"prefill": (prefill.value, 2, "Passed"), "decode": ("Full", 2, "Passed")}
    assert "CompileFailed" not in found.rules
    assert texts(found) == [alone(smollm2, GREEDY)[0].texts]


def test_spoiling_free_pages_is_refused_with_several_ranks(ranks: RankForks, two: Path) -> None:
    asked = config(two, Policy.Disabled, Policy.Disabled, pipeline=2)
    found = ranks.answer(asked, GREEDY, modes="poison")
    assert found.failure.startswith("SettingInvalid: ")
    assert "only the first one knows which pages are free" in found.failure
    assert (found.left, found.folders) == (0, 0)


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [pytest.param(*each, marks=() if each == POLICIES[1] else pytest.mark.slow) for each in POLICIES],
)
def test_two_stages_of_two_ranks_each(ranks: RankForks, two: Path, prefill: Policy, decode: Policy) -> None:
    asks = GREEDY, SCORED
    found = ranks.answer(config(two, prefill, decode, pipeline=2, tensor=2), *asks)
    assert not found.failure
    assert texts(found) == [told.texts for told in alone(two, *asks)]
    if prefill is not Policy.Disabled:
        assert found.graphs == {"prefill": (prefill.value, 2, "Passed"), "decode": (decode.value, 2, "Passed")}


@pytest.mark.parametrize(
    ("fault", "rule", "graphs"),
    sampled(
        ("capture:prefill:4@1", "CaptureFailed", {"prefill": "Disabled", "decode": "Full"}),
        ("selfcheck:decode:4@0", "SelfCheckFailed", {"prefill": "Breakable", "decode": "Disabled"}),
        ("capture-oom:prefill:16@2", "LadderMemory", {"prefill": "Breakable", "decode": "Full"}),
        count=1,
    ),
)
def test_what_one_stage_meets_at_a_start_all_act_on(
    ranks: RankForks, smollm2: Path, fault: str, rule: str, graphs: dict[str, str]
) -> None:
    assert_all_act_on(ranks, smollm2, fault, rule, graphs, pipeline=3)


@pytest.mark.parametrize(
    ("sent", "to", "at"),
    sampled(
        *((sent, to, at) for sent in (signal.SIGKILL, signal.SIGSTOP) for to in (1, 2) for at in ("capture", "decode")),
        count=1,
    ),
)
def test_a_stage_that_ends_or_stands_still_ends_the_engine(
    ranks: RankForks, smollm2: Path, sent: signal.Signals, to: int, at: str
) -> None:
    """Its neighbours miss it in the middle of a pass, and the message names it all the same."""
    silent = 3.0 if sent is signal.SIGSTOP else 20.0
    asked = config(smollm2, Policy.Breakable, Policy.Full, pipeline=3)
    found = ranks.answer(asked, GREEDY, sent=sent, to=to, at=at, silent_seconds=silent)
    where = rf"Rank\w+: rank {to} of 3 \(stage {to + 1} of 3\)"
    how = (
        r"has ended at [\w, ]+: signal SIGKILL"
        if sent is signal.SIGKILL
        else r"stands still at [\w, ]+: no heartbeat .*"
    )
    assert re.fullmatch(rf"{where} {how}(; it waited for .*)?", found.failure), found
    assert found.left == 0


@pytest.mark.slow
def test_last_words_of_a_stage_say_what_it_waited_for(ranks: RankForks, smollm2: Path) -> None:
    """The second of three stages stands still, so the third waits; then that ends."""
    asked = config(smollm2, Policy.Breakable, Policy.Full, pipeline=3)
    found = ranks.answer(asked, GREEDY, sent=signal.SIGKILL, to=2, at="decode", stopped=1)
    assert found.failure == (
        "RankDied: rank 2 of 3 (stage 3 of 3) has ended at Ready: signal SIGKILL; "
        "it waited for hidden states of stage 2"
    )
    assert found.left == 0
