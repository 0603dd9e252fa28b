"""Layers over two GPUs whose sums and norms are one launch: which bodies have them, and what they compute. The kernels
have torch in their place here; `tests/gpu/test_pair.py` has them."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.base.shapes import Activation
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.kernels.activation import gated
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.layers import layer_functions, summed_layers
from graphpod_runtime.models.layers.layer_functions import Before
from graphpod_runtime.models.layers.summed_layers import SummedLayers
from graphpod_runtime.models.random import random_model
from tests.unit.runtime.conftest import write_family, write_llama
from truth.families.tiny import tiny

DENSE = ("llama", "qwen2", "qwen3", "biased")
OTHERS = ("gemma3", "olmo2", "cohere", "granite", "mixtral", "deepseek_v2", "starcoder2")
"""Norms of results, a norm of all heads, an MLP next to attention, a factor of results, experts, a latent, no gate."""
ROWS = 5


def decoder(folder: Path, name: str, whole: bool = False) -> Decoder:
    """A random model, its norms and biases random as well; `whole`, or as the part of the only rank."""
    if name in ("llama", "biased"):
        write_llama(folder, num_hidden_layers=3, **({"mlp_bias": True} if name == "biased" else {}))
    elif name in ("qwen2", "qwen3", "gemma3"):
        write_family(folder, name)
    else:
        folder.mkdir(exist_ok=True)
        config = tiny(name)
        config.update({"residual_multiplier": 0.5} if name == "granite" else {})
        config.save_pretrained(folder)
    model = random_model(folder, torch.float32, 64)
    assert isinstance(model, Decoder)
    torch.manual_seed(0)
    for each in model.parameters():
        if each.dim() == 1:
            each.data.add_(torch.randn_like(each), alpha=0.3)
    layers: Any = model.body.layers
    for layer in () if whole else layers:
        layer.shape = layer.shape.split(0, 1)
    return model


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Torch in the place of kernels, and one rank's sum in that of two's; how many sums there were, by their rows."""
    sums: list[int] = []

    def rotate_into(
        heads: Tensor, cosines: Tensor, sines: Tensor, norms: tuple[Tensor, Tensor] | None, eps: float, places: Any
    ) -> None:
        q, k, _ = places
        each = None if norms is None else layer_functions.HeadNorm.Each
        before = Before(q.shape[1], k.shape[1], q.shape[2], eps, qk_norm=each)
        for place, made in zip(places, before.rotated(heads, cosines, sines, *(norms or (None, None))), strict=True):
            place.copy_(made)

    def add_sum_of_ranks(part: Tensor, x: Tensor, norm: tuple[Tensor, float] | None) -> Tensor:
        sums.append(len(x))
        x += part
        return x if norm is None else functional.rms_norm(x, norm[0].shape, *norm)

    def gated_by_torch(made: Tensor, gelu: bool) -> Tensor:
        return gated(Activation.GeluTanh if gelu else Activation.Silu, made)

    kernels = "graphpod_runtime.kernels"
    monkeypatch.setitem(sys.modules, f"{kernels}.rotated_heads", SimpleNamespace(rotate_into=rotate_into))
    monkeypatch.setitem(sys.modules, f"{kernels}.gated_triton", SimpleNamespace(gated=gated_by_torch))
    monkeypatch.setattr(layer_functions, "TRITON", True)
    monkeypatch.setattr(summed_layers, "TRITON", True)
    monkeypatch.setattr(summed_layers, "add_sum_of_ranks", add_sum_of_ranks)
    return sums


def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Something that every head has a part in."""
    group = q.shape[1] // k.shape[1]
    return (q * k.repeat_interleave(group, 1) + (layer + 1) * v.repeat_interleave(group, 1)).flatten(1)


@pytest.mark.parametrize("name", DENSE[:3])
def test_they_compute_what_the_layers_do(tmp_path: Path, kernels: list[int], name: str) -> None:
    body = decoder(tmp_path, name).body
    summed = SummedLayers.of(body.layers)
    assert summed is not None
    hidden, positions = torch.randn(ROWS, body.shape.hidden), torch.randint(0, 64, (ROWS,))
    expected = body(hidden.clone(), positions, attend)
    torch.testing.assert_close(summed(hidden, body.rotations(positions), attend), expected, rtol=1e-4, atol=1e-4)
    assert kernels == [ROWS] * 2 * len(body.layers), "one launch for each of a layer's sums"


@pytest.mark.parametrize("name", [*DENSE[3:], *OTHERS])
def test_layers_of_another_kind_stay_as_they_are(tmp_path: Path, kernels: list[int], name: str) -> None:
    assert SummedLayers.of(decoder(tmp_path, name).body.layers) is None


def test_a_model_that_each_rank_has_whole_sums_nothing(tmp_path: Path, kernels: list[int]) -> None:
    """As a draft model: one rank alone computes it, and would wait for the other without end."""
    model, cache = decoder(tmp_path, "llama", whole=True), cast(CompileCache, object())
    model.compile_halves(cache)
    assert model.body.summed is None


def test_a_body_has_them_while_its_halves_are_compiled(tmp_path: Path, kernels: list[int]) -> None:
    model, cache = decoder(tmp_path, "llama"), cast(CompileCache, object())
    assert model.body.summed is None
    model.compile_halves(cache)
    assert model.body.summed is not None
    assert not model.body.summed.take(torch.zeros(1, model.shape.hidden)), "this is no GPU"
    model.compile_halves(None)
    assert model.body.summed is None


def test_a_body_takes_them_unless_a_draft_head_reads_its_layers(
    tmp_path: Path, kernels: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = decoder(tmp_path, "llama").body
    hidden, positions = torch.randn(ROWS, body.shape.hidden), torch.arange(ROWS)
    expected = body(hidden.clone(), positions, attend)
    body.summed = SummedLayers.of(body.layers)
    assert torch.equal(body(hidden.clone(), positions, attend), expected), "not on a CPU"
    assert not kernels
    monkeypatch.setattr(SummedLayers, "take", lambda self, hidden: True)
    torch.testing.assert_close(body(hidden.clone(), positions, attend), expected, rtol=1e-4, atol=1e-4)
    assert len(kernels) == 2 * len(body.layers)
    body.read_layers = (1,)
    states, _ = body(hidden.clone(), positions, attend)
    assert torch.equal(states, expected)
    assert len(kernels) == 2 * len(body.layers), "states of layers are those of their halves"
