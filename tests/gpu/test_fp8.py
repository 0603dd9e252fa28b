"""FP8 products on a GPU against the same numbers multiplied in single precision, and an engine over FP8 weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import CompileMode, Policy, Quantization
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.kernels import fp8_product
from graphpod_runtime.kernels.fp8_product import block_product, row_product
from graphpod_runtime.models.weights.channel_scales import quantized_rows
from graphpod_runtime.wire.report import SelfCheck
from tests.unit.runtime.conftest import random_prompts, write_family
from tests.unit.runtime.models.fp8_checkpoints import FORMATS, quantize

CUDA = torch.device("cuda", 0)
ROWS = (1, 5, 16, 17, 64, 300)
SIZES = ((4096, 4096), (12288, 4096), (256, 96), (200, 200), (256, 896))
"""Outputs and inputs: of an 8B model, of the truth matrix, what torch's product does not take, and an odd number of
groups of channels."""
NEAR = {torch.bfloat16: 2e-2, torch.float16: 1e-2, torch.float32: 1e-2}
"""Of the largest result: the last places of 16 bits, and sums that FP8's tensor cores add less exactly."""


def drawn(rows: int, outputs: int, inputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Activations, a weight in FP8 and the scales of its rows."""
    generator = torch.Generator(CUDA).manual_seed(rows + outputs)
    x = torch.randn(rows, inputs, generator=generator, device=CUDA).to(dtype)
    return x, *quantized_rows(torch.randn(outputs, inputs, generator=generator, device=CUDA) / 30)


def near(got: Tensor, wanted: Tensor) -> None:
    apart = float((got.float() - wanted.float()).abs().max() / wanted.float().abs().max())
    assert apart < NEAR[got.dtype], apart


@pytest.mark.parametrize("dtype", NEAR, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("rows", ROWS)
def test_products_by_channels(rows: int, size: tuple[int, int], static: bool, dtype: torch.dtype) -> None:
    x, weight, scale = drawn(rows, *size, dtype)
    given = torch.full((1,), 1 / 64, device=CUDA) if static else None
    got = row_product(x, weight, scale, given, None)
    rounded, x_scale = fp8_product.rounded_rows(x, given)
    near(got, fp8_product._row_twin(rounded, x_scale, weight, scale, torch.float32))


@pytest.mark.parametrize("dtype", NEAR, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rows", ROWS)
def test_products_by_blocks(rows: int, size: tuple[int, int], shared: bool, dtype: torch.dtype) -> None:
    x, weight, _ = drawn(rows, *size, dtype)
    groups = -(-size[1] // 128)
    scale = torch.rand(-(-size[0] // 128) if shared else size[0], groups, device=CUDA) / 30
    got = block_product(x, weight, scale, None)
    rounded, x_scale = fp8_product.rounded_groups(x)
    near(got, fp8_product._block_twin(rounded, x_scale, weight, scale, torch.float32))


@pytest.mark.parametrize("compile", [CompileMode.Nothing, CompileMode.Inductor], ids=str)
@pytest.mark.parametrize("prefill", [Policy.Breakable, Policy.Piecewise], ids=str)
@pytest.mark.parametrize("name", ["blocks", "compressed, channels", "one scale, static", "online"])
def test_an_engine_over_fp8_weights_is_checked_and_answers(
    tmp_path: Path, started: Callable[..., Runner], name: str, prefill: Policy, compile: CompileMode
) -> None:
    write_family(tmp_path, "qwen3")
    changes: dict[str, Any] = {"folder": tmp_path, "dtype": "bfloat16", "compile": compile}
    if name == "online":
        changes["quantization"] = Quantization.Fp8
    else:
        quantize(tmp_path, FORMATS[name])
    runner = started(prefill, Policy.Full, **changes)
    assert all(report.self_check is SelfCheck.Passed for report in runner.report.phases.values())
    prompts = random_prompts(8)
    assert [len(answer) for answer in generate(runner, prompts, 12, ignore_eos=True)] == [12] * len(prompts)
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0
