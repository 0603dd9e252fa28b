"""Speculation over ranks: all verify the same drafts, and write what one rank writes without any."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import OnCaptureFailure, Policy, SpeculativeMethod
from graphpod_runtime.engine.runner import Runner
from tests.unit.runtime.conftest import write_llama
from tests.unit.runtime.mimo import write_mimo
from tests.unit.runtime.near_head import write_head
from tests.unit.runtime.ranks.asking import Ask, recorded_drafts, tell
from tests.unit.runtime.ranks.conftest import POLICIES, PROMPTS, VOCABULARY, alone, config, sampled
from tests.unit.runtime.ranks.rank_forks import RankForks
from truth.drafting.random_head import random_head

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


@pytest.fixture(scope="session")
def heads(
    smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[SpeculativeMethod], tuple[Path, dict[str, Any]]]:
    """A model, and what an engine is asked for its head of a method."""

    def made(method: SpeculativeMethod) -> tuple[Path, dict[str, Any]]:
        folder = tmp_path_factory.mktemp(method.lower())
        if method is SpeculativeMethod.Mtp:
            return write_mimo(folder, vocab_size=VOCABULARY), {"speculative": method}
        eagle = method is SpeculativeMethod.Eagle
        head = write_head(smollm2, folder, method) if eagle else random_head(smollm2, method)
        return smollm2, {"speculative": method, "speculative_draft": str(head)}

    return made


HEADS = [
    (*policies, method)
    for policies in POLICIES
    for method in (SpeculativeMethod.Eagle, SpeculativeMethod.Eagle3, SpeculativeMethod.Mtp)
]
TREE = {"speculative_topk": 3, "speculative_draft_tokens": 7, "decode_sizes": (1, 4, 8, 32)}


@pytest.mark.parametrize(
    ("prefill", "decode", "method", "form"),
    [
        *sampled(*((*case, {}) for case in HEADS), count=1),
        *sampled(*((*case, TREE) for case in HEADS), count=1),
    ],
)
def test_ranks_share_a_head_and_draft_by_it_what_one_rank_drafts(
    ranks: RankForks,
    heads: Callable[[SpeculativeMethod], tuple[Path, dict[str, Any]]],
    prefill: Policy,
    decode: Policy,
    method: SpeculativeMethod,
    form: dict[str, Any],
) -> None:
    """Chains and trees, bit for bit: each rank has the same logits, and chooses the same branches."""
    folder, drafting = heads(method)
    changes, asks = SIZES | {"max_model_len": 64} | drafting | form, (GREEDY, DRAWN)
    one = Runner(config(folder, Policy.Disabled, Policy.Disabled, **changes), lambda report: None)
    one.start()
    drafts = recorded_drafts(one)
    wanted = [tell(one, ask) for ask in asks]
    asked = config(folder, prefill, decode, tensor=3, **changes)
    found = ranks.answer(asked, *asks, modes="seats,addresses", drafts=True)
    assert not found.failure
    assert [told.texts for told in found.told] == [told.texts for told in wanted]
    assert found.drafts == drafts
    assert found.drafted > found.accepted > 0
    assert found.draft_graphs == (0 if decode is Policy.Disabled else 2)
    assert len({one["weightsBytes"] for one in found.ranks}) == 1
    assert found.kv_pages // 3 == one.report.kv_pages


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "graphs", "because"),
    [
        ("capture:draft:4@1", 0, "drafts are computed without graphs: rank 1: model tiny, draft size 4"),
        ("capture-oom:draft:4@2", 1, "drafts of more than 1 requests are computed without graphs: rank 2: model tiny"),
        ("selfcheck:draft:1@2", 0, "drafts are computed without graphs: rank 2: draft size 1: the replay gave other"),
    ],
)
def test_ranks_have_the_same_graphs_of_a_heads_steps_whichever_fails(
    ranks: RankForks,
    heads: Callable[[SpeculativeMethod], tuple[Path, dict[str, Any]]],
    fault: str,
    graphs: int,
    because: str,
) -> None:
    folder, drafting = heads(SpeculativeMethod.Eagle)
    changes = SIZES | {"max_model_len": 64, "on_capture_failure": OnCaptureFailure.Degrade} | drafting
    found = ranks.answer(config(folder, Policy.Breakable, Policy.Full, tensor=3, **changes), GREEDY, faults=fault)
    assert not found.failure
    assert found.draft_graphs == graphs
    assert [warning[: len(because)] for warning in found.warnings] == [because]
    assert [told.texts for told in found.told] == [told.texts for told in alone(folder, GREEDY, max_model_len=64)]
    assert found.accepted > 0
