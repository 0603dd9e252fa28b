"""The type of weights and activations: what a configuration leaves out, and types that not every GPU has."""

from collections.abc import Callable

import pytest
import torch

from graphpod_policy import Phase, Policy
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.wire.report import SelfCheck
from tests.unit.runtime.conftest import random_prompts

EAGER = (Policy.Disabled, Policy.Disabled)


def types_of(runner: Runner) -> set[torch.dtype]:
    """Of the weights and the KV cache."""
    parameters = runner._engine.model.module().parameters()
    return {runner._engine.attention.cache.keys.dtype, *(parameter.dtype for parameter in parameters)}


def test_auto_is_float32_on_a_cpu(started: Callable[..., Runner]) -> None:
    runner = started(*EAGER, dtype=None)
    assert types_of(runner) == {torch.float32}
    assert runner.config.dtype == "float32"
    assert runner.report.warnings == ()


@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
def test_graphs_in_float16_equal_eager_bit_for_bit_and_give_its_tokens(
    started: Callable[..., Runner], decode: Policy
) -> None:
    prompts = random_prompts(8)
    expected = generate(started(*EAGER, dtype="float16"), prompts, 16, ignore_eos=True)
    runner = started(Policy.Breakable, decode, dtype="float16")
    assert types_of(runner) == {torch.float16}
    assert all(runner.report.phases[phase].self_check is SelfCheck.Passed for phase in Phase)
    got = generate(runner, prompts, 16, ignore_eos=True)
    # Matrix products of padded rows may round otherwise.
    assert sum(one == other for one, other in zip(got, expected, strict=True)) >= len(prompts) - 1
