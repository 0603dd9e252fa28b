"""Gemma-3 is what transformers computes: normalised q and k, norms by 1 + w, embeddings scaled, two rotary bases, five
layers with a window to each without, heads as wide as 256, and no soft caps, which are Gemma-2's.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from graphpod_policy import Device, ExitCode, Phase, Policy
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.wire.report import SelfCheck
from tests.contracts.passes import prompt_logits
from tests.unit.runtime.conftest import WINDOW, random_prompts, write_family

SHAPES = {
    "three layers": {},
    "five local layers to a global one": {"num_hidden_layers": 7, "sliding_window_pattern": 6},
    "heads as wide as 256": {"head_dim": 256, "query_pre_attn_scalar": 256},
}


def reference_of(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_transformers_beyond_the_window(
    started: Callable[..., Runner], tmp_path: Path, shape: str
) -> None:
    folder = write_family(tmp_path, "gemma3", **SHAPES[shape])
    runner = started(Policy.Disabled, Policy.Disabled, folder=folder)
    (prompt,) = random_prompts(1, shortest=3 * WINDOW, longest=3 * WINDOW)
    with torch.no_grad():
        expected = reference_of(folder)(torch.tensor([prompt])).logits[0]
    difference = (prompt_logits(runner, prompt).cpu() - expected).abs().max() / expected.abs().max()
    assert difference <= 1e-4


@pytest.mark.parametrize(("offset", "equal"), [(0, True), (1, False), (-1, False)])
def test_a_window_one_token_off_is_another_model(
    started: Callable[..., Runner], tmp_path: Path, offset: int, equal: bool
) -> None:
    """What the comparison above must be able to see."""
    folder = write_family(tmp_path / "a", "gemma3")
    other = write_family(tmp_path / "b", "gemma3", sliding_window=WINDOW + offset)
    (prompt,) = random_prompts(1, shortest=3 * WINDOW, longest=3 * WINDOW)
    ours, others = (
        prompt_logits(started(Policy.Disabled, Policy.Disabled, folder=one), prompt) for one in (folder, other)
    )
    assert bool(((ours - others).abs().max() / ours.abs().max()) <= 1e-4) is equal


@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
def test_graphs_give_the_tokens_of_eager_and_eager_those_of_transformers(
    started: Callable[..., Runner], tmp_path: Path, decode: Policy
) -> None:
    folder, prompts = write_family(tmp_path, "gemma3"), random_prompts(4)
    reference = reference_of(folder)
    said = [
        reference.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0)[0].tolist()
        for prompt in prompts
    ]
    expected = [text[len(prompt) :] for text, prompt in zip(said, prompts, strict=True)]
    assert generate(started(Policy.Disabled, Policy.Disabled, folder=folder), prompts, 12) == expected
    runner = started(Policy.Breakable, decode, folder=folder)
    assert generate(runner, prompts, 12) == expected
    assert all(runner.report.phases[phase].self_check is SelfCheck.Passed for phase in Phase)
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0


@pytest.mark.parametrize("cap", ["attn_logit_softcapping", "final_logit_softcapping"])
def test_soft_caps_are_refused_by_name(started: Callable[..., Runner], tmp_path: Path, cap: str) -> None:
    folder = write_family(tmp_path, "gemma3", **{cap: 30.0})
    with pytest.raises(StartFailure, match=cap) as caught:
        started(folder=folder)
    assert caught.value.code is ExitCode.ModelUnsupported


@pytest.mark.gpu
@pytest.mark.parametrize("device", [Device.Cuda], indirect=True, ids=str)
@pytest.mark.parametrize("width", [64, 128, 256])
def test_on_a_gpu_its_attention_is_torchs_in_16_bits_too(
    started: Callable[..., Runner], tmp_path: Path, width: int
) -> None:
    """The kernels that are there have no window at these widths."""
    folder = write_family(tmp_path, "gemma3", head_dim=width, query_pre_attn_scalar=width)
    runner = started(Policy.Breakable, Policy.Full, folder=folder, dtype="bfloat16")
    assert isinstance(runner._engine.attention, TorchAttention)
    assert all(runner.report.phases[phase].self_check is SelfCheck.Passed for phase in Phase)
