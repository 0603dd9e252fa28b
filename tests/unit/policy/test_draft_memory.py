"""What a draft model takes besides weights and pages is in the plan of the memory, and its heads in the choice of
attention."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graphpod_policy import (
    AttentionBackend,
    Device,
    EngineConfig,
    ExitCode,
    Facts,
    Features,
    GraphRequest,
    ModelConfig,
    ModelFacts,
    NodeFacts,
    SpeculativeMethod,
    can_start,
    resolve,
)
from graphpod_policy.start.footprint import CANDIDATE_BYTES, MOST_DRAFTED, capture_room, drafting_bytes, most_drafted

SHAPES = Path("benchmarks/shapes")
TARGET, SMALL = (
    ModelFacts.of(json.loads((SHAPES / name / "config.json").read_text())) for name in ("qwen3-8b", "qwen3-0.6b")
)
GIB = 1 << 30


def config(batch: int | None = 32, drafted: int | None = None) -> EngineConfig:
    asked = Features(
        device=Device.Cuda,
        gpus=1,
        max_batch=batch,
        max_model_len=4096,
        speculative=SpeculativeMethod.DraftModel,
        speculative_draft="/small",
        speculative_max_batch=drafted,
    )
    plan = resolve(asked, GraphRequest())
    return EngineConfig.of(asked, GraphRequest(), plan, model=ModelConfig("m", "/m"), dtype="bfloat16")


@pytest.mark.parametrize(
    ("batch", "drafted", "most"), [(32, None, 32), (32, 8, 8), (200, None, MOST_DRAFTED), (None, 100, 100)]
)
def test_a_pass_has_drafts_for_as_many_as_the_batch_and_the_limit_say(
    batch: int | None, drafted: int | None, most: int
) -> None:
    assert most_drafted(config(batch, drafted)) == most


def test_captures_leave_room_for_the_graphs_of_drafts() -> None:
    alone, both = (Facts(model=replace(TARGET, draft=draft)) for draft in (None, SMALL))
    assert drafting_bytes(config(), alone) == 0
    # At least the logits of two rows of each request.
    taken = drafting_bytes(config(), both)
    assert 2 * 32 * SMALL.vocab * 4 < taken < GIB
    assert drafting_bytes(config(drafted=8), both) == taken // 4
    given = replace(config(), kv_cache_bytes=GIB)
    assert capture_room(given, alone, 10 * GIB) - capture_room(given, both, 10 * GIB) == taken


def test_captures_leave_room_for_the_branches_of_trees() -> None:
    """Each branch has its logits in single precision and their log-probabilities, next to what a row of a chain has."""
    head = Facts(model=replace(TARGET, draft=replace(SMALL, head=SpeculativeMethod.Eagle)))

    def taken(**tree: int) -> int:
        asked = config()
        features = replace(asked.features, speculative=SpeculativeMethod.Eagle, **tree)
        return drafting_bytes(replace(asked, features=features), head)

    chain, tree = taken(speculative_steps=15), taken(speculative_steps=4, speculative_topk=16)
    candidates = 16 + 3 * 16 * 16
    assert tree - chain == 32 * (16 * SMALL.vocab * 8 + candidates * CANDIDATE_BYTES)


def test_a_draft_model_without_an_attention_kernel_is_refused_by_its_field() -> None:
    """flashinfer has none for heads of 100 numbers; the target's have 128."""
    asked = config()
    asked = replace(asked, features=replace(asked.features, attention=AttentionBackend.FlashInfer))
    plan, node = resolve(asked.feature_set(), GraphRequest()), NodeFacts(capability=(9, 0), gpus=1)

    def refused(draft: ModelFacts) -> list[str]:
        found = can_start(asked, plan, replace(TARGET, draft=draft), node)
        return [one.what for one in found if one.code is ExitCode.AttentionUnavailable]

    assert refused(SMALL) == []
    (words,) = refused(replace(SMALL, head_dim=100))
    assert words.startswith("spec.engine.speculative.draftModel: ")
    assert "100" in words
