"""What the engine tells the resolver of model, place and memory, and what it does with the answer."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from graphpod_policy import Duty, ExitCode, Phase, Plan, Policy
from graphpod_policy import refine as right_refine
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.progress import ignore_progress
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start import starter
from graphpod_runtime.engine.start.device import Host
from graphpod_runtime.engine.start.device_state import DeviceState, attention_of, loaded
from graphpod_runtime.engine.start.limits import derived_limits
from graphpod_runtime.engine.start.resolver_facts import facts_of, known_of
from graphpod_runtime.models.loader import load_model
from tests.unit.runtime.conftest import engine_config

ONE_PAGE = 2 * 3 * 4 * 3 * 16 * 4
"""Keys and values, layers, tokens, heads, width, bytes of the tiny model."""


def test_facts_are_of_the_loaded_model_and_of_what_is_free(llama_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphpod_runtime.engine.start.memory.available_bytes", lambda: 1_000_000_000)
    config, place = engine_config(llama_folder, Policy.Breakable, Policy.Full), Host()
    model = loaded(config, place, load_model, ignore_progress)
    chosen = attention_of(config, place.device, model.shape, model.sinks)
    known = known_of(model.shape, place, chosen)
    facts = facts_of(
        config, DeviceState.made(config, place, model, chosen, derived_limits.rows(config, config.resolved())), known
    )
    assert (facts.attention_layers, facts.configured_layers) == (3, 3)
    assert facts.model is not None
    assert (facts.model.architecture, facts.model.layers, facts.model.vocab) == ("LlamaForCausalLM", 3, 211)
    assert facts.gpu_memory_bytes is None
    assert facts.free_bytes == 900_000_000 - (8 << 20)  # kvCacheMemory
    config = replace(config, kv_cache_bytes=None)
    facts = facts_of(
        config, DeviceState.made(config, place, model, chosen, derived_limits.rows(config, config.resolved())), known
    )
    assert facts.free_bytes == 900_000_000 - 128 // 4 * ONE_PAGE  # one full context


def test_a_place_with_little_memory_gets_a_shorter_ladder_before_anything_is_captured(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "available_bytes", lambda self: 10_500_000)
    runner = started(decode=Policy.Disabled)
    prefill = runner.report.as_dict()["graph"]["prefill"]
    assert prefill["sizes"] == {"planned": 4, "captured": 3, "failed": 0}
    (decision,) = (entry for entry in runner.report.as_dict()["decisions"] if entry["stage"] == "Engine")
    assert (decision["rule"], decision["outcome"]) == ("LadderMemory", "Adjusted")


def test_a_duty_that_the_engine_does_not_know_ends_the_start(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_duty(plan: Plan, facts: object) -> Plan:
        return replace(right_refine(plan, facts), duties={Phase.Prefill: (Duty.AllRankVote,), Phase.Decode: ()})  # type: ignore[arg-type]

    monkeypatch.setattr(starter, "refine", with_duty)
    with pytest.raises(StartFailure, match="prefill: the plan asks the engine for AllRankVote") as caught:
        started()
    assert caught.value.code is ExitCode.FeatureNotBuilt


def test_the_engine_runs_the_chunk_of_its_own_plan(llama_folder: Path) -> None:
    """A hand-written configuration may ask for more than every slot's whole context."""
    config = engine_config(llama_folder, Policy.Breakable, Policy.Full, prefill_chunk=4096, max_model_len=64)
    assert Runner(config, lambda report: None).config.prefill_chunk == 64 * 8
