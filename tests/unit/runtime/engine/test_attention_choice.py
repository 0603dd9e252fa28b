"""What a configuration asks of attention and of the KV cache is what runs, or the start ends and says why."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from graphpod_policy import AttentionBackend, ExitCode, KvCacheDtype, Phase, Policy
from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.shapes import KvScale
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.wire.report import SelfCheck
from tests.unit.runtime.conftest import FAMILIES, random_prompts, write_family, write_llama
from tests.unit.runtime.models.test_families import prefill_logits

FP8 = {"kv_cache_dtype": KvCacheDtype.Fp8}
EAGER = (Policy.Disabled, Policy.Disabled)


def test_the_report_says_whose_kernels_attend_and_why(started: Callable[..., Runner]) -> None:
    assert started(*EAGER).report.as_dict()["attention"] == {
        "kernels": "torch",
        "because": "flashinfer's kernels run on a GPU",
    }
    report = started(*EAGER, attention=AttentionBackend.Torch).report.as_dict()
    assert report["attention"] == {"kernels": "torch", "because": "spec.engine.attention is Torch"}


@pytest.mark.parametrize(
    ("kernels", "code", "words"),
    [
        (
            AttentionBackend.FlashInfer,
            ExitCode.AttentionUnavailable,
            "FlashInfer cannot be served: flashinfer's kernels run on a GPU; set spec.engine.attention: Auto",
        ),
        (
            AttentionBackend.Fa3,
            ExitCode.AttentionUnavailable,
            "Fa3 cannot be served: flashinfer's kernels run on a GPU; set spec.engine.attention: Auto",
        ),
        (
            AttentionBackend.Triton,
            ExitCode.FeatureNotBuilt,
            r"Triton attention \(Triton\) is not built in this version; use one of Auto, Torch, FlashInfer, Fa3",
        ),
    ],
)
def test_kernels_that_cannot_be_had_end_the_start(
    started: Callable[..., Runner], kernels: AttentionBackend, code: ExitCode, words: str
) -> None:
    with pytest.raises(StartFailure, match=f"spec.engine.attention: {words}") as caught:
        started(*EAGER, attention=kernels)
    assert caught.value.code is code


@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
@pytest.mark.parametrize("family", ["llama", *FAMILIES])
def test_graphs_over_an_fp8_cache_give_the_tokens_of_eager(
    tmp_path: Path, started: Callable[..., Runner], family: str, decode: Policy
) -> None:
    folder = write_llama(tmp_path) if family == "llama" else write_family(tmp_path, family)
    give_scales(folder, {"k_scale": 0.25, "v_scale": 0.125})
    prompts = random_prompts(8)
    expected = generate(started(*EAGER, folder=folder, **FP8), prompts, 16, ignore_eos=True)
    runner = started(Policy.Breakable, decode, folder=folder, **FP8)
    assert runner._engine.attention.cache.keys.dtype is torch.float8_e4m3fn
    assert runner._engine.attention.cache.scales == (KvScale(0.25, 0.125),) * 3
    assert all(runner.report.phases[phase].self_check is SelfCheck.Passed for phase in Phase), "bit for bit"
    got = generate(runner, prompts, 16, ignore_eos=True)
    # Matrix products of padded rows may round otherwise, and FP8 makes a last bit a sixteenth.
    assert sum(one == other for one, other in zip(got, expected, strict=True)) >= len(prompts) - 1
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0


def test_an_fp8_cache_answers_the_same_however_a_prompt_is_cut(started: Callable[..., Runner]) -> None:
    prompts = random_prompts(6, shortest=20)
    whole = started(*EAGER, prefill_chunk=128, **FP8)
    pieces = started(*EAGER, prefill_chunk=7, **FP8)
    assert generate(whole, prompts, 8, ignore_eos=True) == generate(pieces, prompts, 8, ignore_eos=True)


def test_poison_beside_an_fp8_cache_changes_no_token(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = random_prompts(6)
    clean = generate(started(**FP8), prompts, 8, ignore_eos=True)
    monkeypatch.setenv("GRAPHPOD_DEBUG", "poison")
    assert generate(started(**FP8), prompts, 8, ignore_eos=True) == clean


def test_a_byte_a_value_gives_four_times_the_pages_of_float32(started: Callable[..., Runner]) -> None:
    plain, small = started(*EAGER), started(*EAGER, **FP8)
    assert small.report.kv_pages == pytest.approx(4 * plain.report.kv_pages, abs=4)
    assert small.pages.capacity == small.report.kv_pages


def give_scales(folder: Path, scales: dict[str, float | list[float]]) -> None:
    """Scales for all layers of a checkpoint, by what follows `self_attn.` in their names."""
    tensors = load_file(folder / "model.safetensors")
    for layer in range(3):
        for name, scale in scales.items():
            tensors[f"model.layers.{layer}.self_attn.{name}"] = torch.tensor(scale)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, KvScale(1.0, 1.0)),
        ({"k_scale": 0.5, "v_scale": 0.25}, KvScale(0.5, 0.25)),
        ({"k_proj.k_scale": [0.5], "v_proj.v_scale": [0.25]}, KvScale(0.5, 0.25)),
        ({"kv_scale": 0.5}, KvScale(0.5, 0.5)),
        ({"v_scale": 2.0}, KvScale(1.0, 2.0)),
    ],
)
def test_scales_are_those_of_the_checkpoint(
    tmp_path: Path, given: dict[str, float | list[float]], expected: KvScale
) -> None:
    give_scales(write_llama(tmp_path), given)
    assert load_model(tmp_path, torch.float32, 64).kv_scales == (expected,) * 3


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "3 of 3 layers (first layer 0)"),
        ({"k_scale": 0.5}, "3 of 3 layers (first layer 0)"),
        ({"kv_scale": 0.5}, None),
        ({"k_scale": 0.5, "v_scale": 0.25}, None),
    ],
)
def test_an_fp8_cache_without_scales_is_reported_and_logged(
    tmp_path: Path,
    started: Callable[..., Runner],
    caplog: pytest.LogCaptureFixture,
    given: dict[str, float],
    missing: str | None,
) -> None:
    give_scales(write_llama(tmp_path), given)
    with caplog.at_level(logging.WARNING):
        warnings = started(*EAGER, folder=tmp_path, **FP8).report.as_dict()["warnings"]
    if missing is None:
        assert warnings == []
        return
    (warning,) = warnings
    assert missing in warning
    assert "set spec.engine.kvCacheDtype to Auto" in warning
    assert f"model tiny: {warning}" in caplog.messages
    caplog.clear()
    assert started(*EAGER, folder=tmp_path).report.as_dict()["warnings"] == []
    assert not any("FP8 KV scales" in message for message in caplog.messages)


def test_layers_without_a_scale_are_named_one_by_one(tmp_path: Path) -> None:
    folder = write_llama(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    for name in ("k_scale", "v_scale"):
        tensors[f"model.layers.1.self_attn.{name}"] = torch.tensor(0.5)
    save_file(tensors, folder / "model.safetensors")
    assert load_model(folder, torch.float32, 64).unscaled_layers == (0, 2)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), [1.0, 2.0]])
def test_a_scale_that_no_cache_can_use_is_named(tmp_path: Path, scale: float | list[float]) -> None:
    give_scales(write_llama(tmp_path), {"k_scale": scale})
    with pytest.raises(ModelInvalid, match=r"layers\.0\.self_attn\.k_scale is .*; only one positive number"):
        load_model(tmp_path, torch.float32, 64)


def test_scales_matter_and_good_ones_lose_little(tmp_path: Path, started: Callable[..., Runner]) -> None:
    """Values divided by a scale too small for them are cut off: the logits of another model."""
    (prompt,) = random_prompts(1, shortest=60)
    expected = prefill_logits(started(*EAGER), prompt)

    def lost(scale: float) -> float:
        folder = write_llama(tmp_path / str(scale))
        give_scales(folder, {"k_scale": scale, "v_scale": scale})
        got = prefill_logits(started(*EAGER, folder=folder, **FP8), prompt)
        return float((got - expected).norm() / expected.norm())

    good, bad = lost(0.05), lost(1e-4)
    assert good < 0.3 < 0.8 < bad, (good, bad)
