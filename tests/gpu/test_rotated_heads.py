"""Norm and rotation of heads, and the gate of an MLP, by our kernels, against the layer's own code in torch."""

import pytest
import torch

from graphpod_policy.model.architectures import HeadNorm
from graphpod_runtime.base.shapes import Activation
from graphpod_runtime.kernels.activation import gated as by_torch
from graphpod_runtime.models.layers.layer_functions import Before
from graphpod_runtime.models.rope.rope_tables import rope_tables

CUDA = torch.device("cuda", 0)
EPS = 1e-6


@pytest.mark.parametrize("norm", ["none", "its type", "single precision"])
@pytest.mark.parametrize("width", [16, 64, 128, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("rows", [1, 33, 700])
def test_heads_are_those_of_the_layers_own_code(rows: int, dtype: torch.dtype, width: int, norm: str) -> None:
    from graphpod_runtime.kernels.rotated_heads import rotate_into

    generator = torch.Generator(CUDA).manual_seed(rows + width)

    def drawn(*shape: int, of: torch.dtype = dtype) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=CUDA).to(of)

    each = None if norm == "none" else HeadNorm.Each
    before = Before(heads=6, kv_heads=2, head_dim=width, eps=EPS, qk_norm=each)
    positions = torch.randint(0, 4000, (rows,), generator=generator, device=CUDA)
    cosines, sines = (table.to(CUDA)[positions] for table in rope_tables(4000, width, 1e4, dtype))
    weight = dtype if norm == "its type" else torch.float32
    norms = None if norm == "none" else (drawn(width, of=weight), drawn(width, of=weight))
    projected = drawn(rows, 10 * width)
    expected = before.rotated(projected.view(rows, 10, width), cosines, sines, *(norms or (None, None)))
    places = tuple(torch.full((rows, count, width), torch.nan, dtype=dtype, device=CUDA) for count in (6, 2, 2))
    rotate_into(projected.view(rows, 10, width), cosines, sines, norms, EPS, places)
    # The last bit may differ where a product and a sum are one operation here and two there.
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype is torch.float32 else {"rtol": 1.6e-2, "atol": 2e-2}
    for place, right in zip(places, expected, strict=True):
        torch.testing.assert_close(place, right, **near)
        if dtype is not torch.float32:
            assert (place != right).double().mean() < 0.01
    assert torch.equal(places[2], expected[2])


@pytest.mark.parametrize("activation", list(Activation))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "width"), [(1, 12800), (64, 1500), (128, 64)])
def test_a_gate_is_that_of_torchs_operators(rows: int, width: int, dtype: torch.dtype, activation: Activation) -> None:
    from graphpod_runtime.kernels.gated_triton import gated

    made = torch.randn(rows, 2 * width, generator=torch.Generator(CUDA).manual_seed(rows), device=CUDA).to(dtype) * 3
    found, expected = gated(made, activation is Activation.GeluTanh), by_torch(activation, made.clone())
    torch.testing.assert_close(found, expected, rtol=1.6e-2, atol=2e-3)
    # Torch has another tanh, and a last bit of the activation is one of the result. Where that is next to zero, torch
    # subtracts two numbers next to one.
    often = 0.05 if activation is Activation.GeluTanh else 0.01
    assert ((found != expected) & (expected.abs() > 2e-3)).double().mean() < often
