"""FP8 weights (contracts-serving 23 and 24): each format loads as what it says, scales are checked, rows are
independent, and graphs give what eager gives.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from safetensors.torch import load_file, save_file
from torch import Tensor

from graphpod_policy import CompileMode, Policy, Quantization
from graphpod_runtime.base.errors import ModelInvalid, ModelUnsupported
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.kernels.fp8_product import BLOCK, FP8, LARGEST, rounded_groups, rounded_rows
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.weights.channel_scales import quantized_rows
from graphpod_runtime.models.weights.product import Form
from graphpod_runtime.wire.report import SelfCheck
from tests.unit.runtime.conftest import random_prompts, write_llama
from tests.unit.runtime.models.fp8_checkpoints import (
    ACTIVATIONS,
    FORMATS,
    WEIGHTS,
    compressed,
    edit,
    quantize,
    quantized,
    static,
)

LEFT_OUT = "compressed, a layer left out"


def covered(name: str) -> Callable[[str], bool]:
    """Which modules of the format `name` are in FP8."""
    return lambda module: name != LEFT_OUT or "layers.1." not in module


def rounded(x: Tensor, config: dict[str, Any], blocks: bool) -> Tensor:
    """What the reference multiplies: x rounded to FP8 and back."""
    if static(config):
        return (x / ACTIVATIONS).clamp(-LARGEST, LARGEST).to(FP8).float() * ACTIVATIONS
    if not blocks:
        scale = x.abs().amax(-1, keepdim=True) / LARGEST
        return (x / scale).to(FP8).float() * scale
    parts = []
    for part in x.split(BLOCK, dim=-1):
        scale = part.abs().amax(-1, keepdim=True) / LARGEST
        parts.append((part / scale).to(FP8).float() * scale)
    return torch.cat(parts, -1)


def dequantized(module: str, tensors: dict[str, Tensor], blocks: bool = False) -> Tensor:
    """The weight that the checkpoint means, by its definition."""
    weight = tensors[f"{module}.weight"].float()
    scale = next(value for name, value in tensors.items() if name.startswith(f"{module}.weight_scale")).float()
    if blocks:
        outputs, inputs = weight.shape
        scale = scale.repeat_interleave(BLOCK, 0)[:outputs].repeat_interleave(BLOCK, 1)[:, :inputs]
    return weight * scale


@pytest.mark.parametrize("name", FORMATS)
def test_a_checkpoint_multiplies_as_its_format_says(tmp_path: Path, name: str) -> None:
    config = FORMATS[name]
    # 144 wide: blocks are partial, and those of k and v begin in the middle of 128 rows.
    write_llama(tmp_path)
    plain = load_file(tmp_path / WEIGHTS)
    quantize(tmp_path, config, covered(name))
    model = load_model(tmp_path, torch.float32, 64)
    assert isinstance(model, Decoder)
    tensors = load_file(tmp_path / WEIGHTS)
    for index, layer in enumerate(model.body.layers):
        for linear, parts in (
            (layer.qkv, ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
            (layer.out, ("self_attn.o_proj",)),
            (layer.mlp.gate_up, ("mlp.gate_proj", "mlp.up_proj")),
            (layer.mlp.down, ("mlp.down_proj",)),
        ):
            modules = [f"model.layers.{index}.{part}" for part in parts]
            inputs = tensors[f"{modules[0]}.weight"].shape[1]
            x = torch.randn(5, inputs, generator=torch.Generator().manual_seed(index))
            if not covered(name)(modules[0]):
                assert linear.weight.form is Form.Plain
                weight = torch.cat([plain[f"{module}.weight"] for module in modules])
                assert torch.allclose(linear.weight.matmul(x), functional.linear(x, weight), rtol=1e-4, atol=1e-4)
                continue
            blocks = linear.weight.form is Form.Fp8Blocks
            assert blocks == ("blocks" in name)
            weight = torch.cat([dequantized(module, tensors, blocks) for module in modules])
            wanted = functional.linear(rounded(x, config, blocks), weight)
            assert torch.allclose(linear.weight.matmul(x), wanted, rtol=1e-4, atol=1e-4)


WRONG: dict[str, tuple[str, Callable[[dict[str, Tensor]], object], str]] = {
    "a missing scale": (
        "blocks",
        lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight_scale_inv"),
        "1 of .* tensors are missing, first model.layers.1.mlp.up_proj.weight_scale_inv",
    ),
    "a missing scale of activations": (
        "one scale, static",
        lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.input_scale"),
        "missing, first model.layers.1.mlp.up_proj.input_scale",
    ),
    "blocks of another size": (
        "blocks",
        lambda tensors: tensors.update({"model.layers.0.mlp.down_proj.weight_scale_inv": torch.ones(3, 2)}),
        r"has shape \[3, 2\], config.json says \[2, 1\]",
    ),
    "a scale that is NaN": (
        "compressed, channels",
        lambda tensors: tensors["model.layers.0.mlp.down_proj.weight_scale"][3].fill_(torch.nan),
        "down_proj.weight_scale has a scale that is not finite",
    ),
    "a scale that is infinite": (
        "blocks",
        lambda tensors: tensors["model.layers.0.mlp.down_proj.weight_scale_inv"].fill_(torch.inf),
        "has a scale that is not finite",
    ),
    "a negative scale": (
        "compressed, channels",
        lambda tensors: tensors["model.layers.0.mlp.down_proj.weight_scale"].neg_(),
        "has a negative scale",
    ),
    "a scale of activations that is 0": (
        "one scale, static",
        lambda tensors: tensors["model.layers.2.self_attn.q_proj.input_scale"].zero_(),
        "is 0: activations cannot be divided by it",
    ),
    "plain weights": (
        "blocks",
        lambda tensors: tensors.update(
            {"model.layers.0.mlp.down_proj.weight": tensors["model.layers.0.mlp.down_proj.weight"].bfloat16()}
        ),
        "down_proj.weight is bfloat16, and quantization_config says float8_e4m3fn",
    ),
    "the other FP8": (
        "blocks",
        lambda tensors: tensors.update(
            {
                "model.layers.0.mlp.down_proj.weight": tensors["model.layers.0.mlp.down_proj.weight"]
                .float()
                .to(torch.float8_e5m2)
            }
        ),
        "is float8_e5m2",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_scales_are_checked_for_shape_sign_and_finiteness(tmp_path: Path, name: str) -> None:
    format, change, words = WRONG[name]
    write_llama(tmp_path)
    quantize(tmp_path, FORMATS[format])
    tensors = load_file(tmp_path / WEIGHTS)
    change(tensors)
    save_file(tensors, tmp_path / WEIGHTS)
    with pytest.raises(ModelInvalid, match=words):
        load_model(tmp_path, torch.float32, 64)


def changed(config: dict[str, Any], half: str, **changes: object) -> dict[str, Any]:
    group = config["config_groups"]["group_0"]
    return config | {"config_groups": {"group_0": group | {half: group[half] | changes}}}


UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "another method": ({"quant_method": "gptq", "bits": 4}, "quantization_config of 'gptq' is not built"),
    "small blocks": (FORMATS["blocks"] | {"weight_block_size": [64, 64]}, r"weight_block_size \[64, 64\] is not built"),
    "the other FP8": (FORMATS["blocks"] | {"fmt": "e5m2"}, "fmt 'e5m2' is not built"),
    "scales of powers of two": (FORMATS["blocks"] | {"scale_fmt": "ue8m0"}, "scale_fmt 'ue8m0' is not built"),
    "integers": (changed(compressed("channel"), "weights", type="int"), "weights.type 'int' is not built"),
    "four bits": (changed(compressed("channel"), "weights", num_bits=4), "weights.num_bits 4 is not built"),
    "groups": (changed(compressed("channel"), "weights", strategy="group"), "weights.strategy 'group' is not built"),
    "offsets": (changed(compressed("channel"), "weights", symmetric=False), "weights.symmetric False is not built"),
    "packed": (compressed("channel") | {"format": "pack-quantized"}, "format 'pack-quantized' is not built"),
    "weights alone": (
        compressed("channel")
        | {
            "config_groups": {
                "group_0": compressed("channel")["config_groups"]["group_0"] | {"input_activations": None}
            }
        },
        "without input_activations",
    ),
    "a part of what is fused": (
        compressed("channel", ignore=("model.layers.1.self_attn.q_proj",)),
        "layers.1: self_attn.q_proj, self_attn.k_proj, self_attn.v_proj",
    ),
    "no pattern": (compressed("channel", ignore=("re:(",)), "is no pattern"),
    "many patterns": (compressed("channel", ignore=("re:x",) * 65), "by more than 64 patterns"),
    "no name": (compressed("channel", ignore=(7,)), "ignores 7"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_format_that_is_not_known_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    config, words = UNKNOWN[name]
    write_llama(tmp_path)
    edit(tmp_path, quantization_config=config)
    with pytest.raises(ModelUnsupported, match=words):
        load_model(tmp_path, torch.float32, 64)


def test_fp8_that_config_json_does_not_speak_of_is_refused_with_what_to_do(tmp_path: Path) -> None:
    write_llama(tmp_path, tied=False)
    tensors = load_file(tmp_path / WEIGHTS)
    tensors["lm_head.weight"] = tensors["lm_head.weight"].to(FP8)
    save_file(tensors, tmp_path / WEIGHTS)
    with pytest.raises(ModelInvalid, match=r"lm_head.weight is float8_e4m3fn, where .* leave out all others, lm_head"):
        load_model(tmp_path, torch.float32, 64)


@pytest.mark.parametrize("by_groups", [False, True])
def test_no_row_depends_on_another(by_groups: bool) -> None:
    x = torch.randn(7, 200, generator=torch.Generator().manual_seed(3))
    x[3], x[5] = torch.nan, 0.0
    whole = rounded_groups(x) if by_groups else rounded_rows(x, None)
    for row in range(7):
        alone = rounded_groups(x[row : row + 1]) if by_groups else rounded_rows(x[row : row + 1], None)
        for one, other in zip(alone, whole, strict=True):
            assert torch.equal(one.float()[0].nan_to_num(7), other.float()[row].nan_to_num(7))
    assert not whole[0].float()[[0, 1, 2, 4, 5, 6]].isnan().any()


def test_a_channel_takes_the_scale_with_the_least_error() -> None:
    rows = torch.randn(64, 300, generator=torch.Generator().manual_seed(0))
    matrix, scale = quantized_rows(rows)
    least = rows.abs().amax(1) / LARGEST
    naive = (rows / least[:, None]).to(FP8).float() * least[:, None]
    error, before = ((one - rows).square().sum() for one in (matrix.float() * scale[:, None], naive))
    assert bool(((scale >= least) & (scale < 2 * least)).all())
    assert error < 0.92 * before


def test_plain_weights_become_fp8_piece_by_piece_as_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_llama(tmp_path)
    whole = load_model(tmp_path, torch.float32, 64, quantize=True)
    monkeypatch.setattr("graphpod_runtime.models.weights.fp8_destinations.PIECE_BYTES", 3000)
    pieces = load_model(tmp_path, torch.float32, 64, quantize=True)
    for (name, one), (_, other) in zip(whole.module().named_buffers(), pieces.module().named_buffers(), strict=True):
        assert torch.equal(one.float(), other.float()), name
    assert whole.module().embedding.dtype is torch.float32, "embedding and head stay plain"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "prefill", "decode"),
    [
        ("blocks", Policy.Breakable, Policy.Full),
        ("one scale, static", Policy.Breakable, Policy.Breakable),
        ("online", Policy.Breakable, Policy.Full),
        (LEFT_OUT, Policy.Piecewise, Policy.Full),
    ],
)
def test_graphs_over_fp8_weights_give_the_tokens_of_eager(
    tmp_path: Path, started: Callable[..., Runner], name: str, prefill: Policy, decode: Policy
) -> None:
    write_llama(tmp_path)
    changes: dict[str, Any] = {"folder": tmp_path}
    if name == "online":
        changes["quantization"] = Quantization.Fp8
    else:
        quantize(tmp_path, FORMATS[name], covered(name))
    prompts = random_prompts(8)
    expected = generate(started(Policy.Disabled, Policy.Disabled, **changes), prompts, 12, ignore_eos=True)
    runner = started(prefill, decode, **changes)
    assert all(report.self_check is SelfCheck.Passed for report in runner.report.phases.values())
    assert "FP8" in str(runner.report.weights)
    got = generate(runner, prompts, 12, ignore_eos=True)
    # A padded product may round its last bit otherwise, and FP8 makes a sixteenth of it.
    assert sum(one == other for one, other in zip(got, expected, strict=True)) >= len(prompts) - 1
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0


def test_quantized_is_what_a_checkpoint_of_channels_holds() -> None:
    weight = torch.randn(6, 40)
    tensors = quantized("x", weight, compressed("channel"))
    assert torch.allclose(dequantized("x", tensors), weight, rtol=0.07, atol=1e-2)


@pytest.mark.slow
def test_compiled_halves_over_fp8_weights_are_compiled_once_for_each_form(
    tmp_path: Path, started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Widths are multiples of 64: on a CPU inductor rounds the tail of other rows to garbage, which the proof of
    compiled code refuses (torch 2.11 and 2.13)."""
    monkeypatch.setenv("GRAPHPOD_COMPILE_CACHE", str(tmp_path / "compiled"))
    folder = tmp_path / "model"
    folder.mkdir()
    write_llama(folder, heads=16, kv_heads=4, intermediate_size=256)
    quantize(folder, FORMATS["blocks"])
    prompts = random_prompts(4)
    expected = generate(started(Policy.Disabled, Policy.Disabled, folder=folder), prompts, 8, ignore_eos=True)
    runner = started(Policy.Breakable, Policy.Full, folder=folder, compile=CompileMode.Inductor)
    kept = sorted(path.name.partition("-")[0] for path in (tmp_path / "compiled").iterdir())
    assert kept == ["after", "before"]
    got = generate(runner, prompts, 8, ignore_eos=True)
    assert sum(one == other for one, other in zip(got, expected, strict=True)) >= len(prompts) - 1
