"""Speculation over ranks: all verify the same drafts, and write what one rank writes without any."""

from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import Policy, SpeculativeMethod
from tests.unit.runtime.conftest import write_llama
from tests.unit.runtime.ranks.asking import Ask
from tests.unit.runtime.ranks.conftest import POLICIES, PROMPTS, VOCABULARY, alone, config, sampled
from tests.unit.runtime.ranks.rank_forks import RankForks

SIZES = {"decode_sizes": (1, 4, 8, 16), "speculative_steps": 3, "speculative_max_batch": 4}
REPEATING = [prompt * 3 for prompt in ([5, 6, 7, 8, 9], [30, 31], [40, 41, 42])]
GREEDY = Ask([*REPEATING, *PROMPTS[:2]], max_tokens=20)
DRAWN = Ask(REPEATING, max_tokens=20, temperature=0.8)
PREFIXES = Ask([PROMPTS[0], PROMPTS[0] + PROMPTS[1][:9]], prefixes=True)
ROOM = 26
"""Pages of a cache in which these sequences have no room together, with drafts or without."""
PAGE = 4 * 2 * 3 * 3 * 16 * 4
"""Bytes of keys and values of four tokens: three layers of three heads, in float32."""


@pytest.fixture(scope="session")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model, which is never right, of heads that three ranks could not divide."""
    folder = tmp_path_factory.mktemp("drafter")
    return write_llama(folder, heads=4, kv_heads=2, num_hidden_layers=2, vocab_size=VOCABULARY, seed=5)


@pytest.mark.parametrize(
    ("prefill", "decode", "method"),
    sampled(
        *((*policies, method) for policies in POLICIES for method in ("ngram", "drafter", "itself")),
        count=1,
    ),
)
def test_ranks_with_drafts_write_what_one_rank_writes(
    ranks: RankForks, smollm2: Path, drafter: Path, prefill: Policy, decode: Policy, method: str
) -> None:
    """Also where pages are short, so that sequences lose those of drafts and are preempted. Every landing compares what
    each rank's device knows with its host."""
    speculative: dict[str, Any] = {"speculative": SpeculativeMethod.Ngram}
    if method != "ngram":
        folder = drafter if method == "drafter" else smollm2
        speculative = {"speculative": SpeculativeMethod.DraftModel, "speculative_draft": str(folder)}
    changes = SIZES | {"max_model_len": 64}
    room = {"kv_cache_bytes": ROOM * PAGE // 3} if method == "ngram" else {}
    asks = GREEDY, DRAWN, PREFIXES
    wanted = alone(smollm2, *asks, max_model_len=64)
    known = [
        prompt + text
        for ask, told in zip(asks, wanted, strict=True)
        for prompt, text in zip(ask.prompts, told.texts, strict=True)
    ]
    asked = config(smollm2, prefill, decode, tensor=3, **changes, **speculative, **room)
    found = ranks.answer(asked, *asks, modes="seats", known=known)
    assert not found.failure
    assert [told.texts for told in found.told] == [told.texts for told in wanted]
    assert found.drafted > found.accepted
    assert (found.accepted > 0) is (method != "drafter")
    assert found.told[2].cached == wanted[2].cached > 0
    if room:
        assert found.kv_pages == ROOM
        assert found.told[0].preemptions > 0
    assert found.told[0].ahead == 2
