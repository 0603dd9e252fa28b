"""A tree cannot have more branches than its head knows tokens."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graphpod_policy import (
    Device,
    EngineConfig,
    ExitCode,
    Features,
    GraphRequest,
    ModelConfig,
    ModelFacts,
    SpeculativeMethod,
    can_start,
    resolve,
)

TARGET = ModelFacts.of(json.loads(Path("benchmarks/shapes/qwen3-0.6b/config.json").read_text()))


def refused(topk: int, method: SpeculativeMethod, **head: int) -> list[str]:
    asked = Features(device=Device.Cuda, gpus=1, speculative=method, speculative_draft="/head", speculative_topk=topk)
    plan = resolve(asked, GraphRequest())
    config = EngineConfig.of(asked, GraphRequest(), plan, model=ModelConfig("m", "/m"), dtype="bfloat16")
    known = replace(TARGET, draft=replace(TARGET, head=method, **head))
    return [f"{one.what}; {one.step}" for one in can_start(config, plan, known) if one.code is ExitCode.SettingInvalid]


def test_more_branches_than_tokens_of_a_reduced_vocabulary_are_refused_with_both_numbers() -> None:
    (words,) = refused(9, SpeculativeMethod.Eagle3, draft_vocab=8)
    assert "spec.engine.speculative.topk: 9 branches at each step, and the draft head knows 8 tokens" in words
    assert words.endswith("set spec.engine.speculative.topk to 8 or less")
    assert refused(8, SpeculativeMethod.Eagle3, draft_vocab=8) == []


@pytest.mark.parametrize("method", [SpeculativeMethod.Eagle, SpeculativeMethod.Mtp])
def test_heads_that_draft_all_tokens_of_the_model_have_its_vocabulary(method: SpeculativeMethod) -> None:
    assert refused(16, method) == []
