"""Quantised checkpoints as they are published: each is read, or refused with its form and what to take instead."""

import json
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import ModelFacts
from graphpod_policy.model.fp8_scheme import SchemeNotBuilt, scheme_of
from graphpod_policy.model.shown import cut
from graphpod_policy.model.weight_form import INSTEAD, form_by_tensor

SHAPE: dict[str, Any] = json.loads(Path("benchmarks/shapes/qwen3-8b/config.json").read_text())


def gptq(**changes: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True} | changes


def compressed(form: str, weights: dict[str, Any], inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}}


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
BY_TOKEN = {"num_bits": 8, "dynamic": True, "strategy": "token", "symmetric": True}
NF4 = {"load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4"}

READ: dict[str, dict[str, Any]] = {
    "fp8, blocks": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "fp8, a scale for each matrix": {"quant_method": "fp8", "activation_scheme": "static"},
    "compressed-tensors, FP8": compressed("float-quantized", FP8, BY_TOKEN | {"type": "float"}),
}

REFUSED: dict[str, tuple[Any, str]] = {
    "AWQ": (
        {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
        "INT4 by AWQ, groups of 128, version gemm",
    ),
    "AWQ, gemv": (
        {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "version": "gemv"},
        "groups of 64, version gemv",
    ),
    "GPTQ": (gptq(), "INT4 by GPTQ, groups of 128)"),
    "GPTQ with act order": (gptq(desc_act=True, group_size=32), "INT4 by GPTQ, groups of 32, with act order"),
    "GPTQ, eight bits": (gptq(bits=8, group_size=-1), "INT8 by GPTQ)"),
    "AutoRound": ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "INT4 by AutoRound, groups of 128"),
    "compressed-tensors, INT4": (compressed("pack-quantized", INT4), "INT4, packed by compressed-tensors"),
    "compressed-tensors, INT8": (
        compressed("int-quantized", INT8, BY_TOKEN | {"type": "int"}),
        "INT8, weights and activations, by compressed-tensors",
    ),
    "compressed-tensors, FP8 weights alone": (compressed("float-quantized", FP8), "FP8 by compressed-tensors"),
    "compressed-tensors, NVFP4": (
        compressed("nvfp4-pack-quantized", FP8 | {"num_bits": 4}),
        "NVFP4 by compressed-tensors",
    ),
    "compressed-tensors, several": (compressed("mixed-precision", INT4), "several forms by compressed-tensors"),
    "compressed-tensors, unknown": (compressed("x" * 99, INT4), f"format {cut('x' * 99)!r} by compressed-tensors"),
    "compressed-tensors, no group": (
        {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": 7}},
        "INT?, packed by compressed-tensors",
    ),
    "bitsandbytes, four bits": ({"quant_method": "bitsandbytes", **NF4}, "4 bits (nf4) by bitsandbytes"),
    "bitsandbytes, eight bits": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "INT8 by bitsandbytes"),
    "fp8, small blocks": ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "(the weights are FP8)"),
    "fp8, powers of two": ({"quant_method": "fp8", "scale_fmt": "ue8m0"}, "(the weights are FP8)"),
    "fp8, blocks without an end": ({"quant_method": "fp8", "weight_block_size": [1] * 9999}, "(the weights are FP8)"),
    "compressed-tensors, no end": (
        {"quant_method": "compressed-tensors", "format": [1] * 9999, "config_groups": {"a": {}}},
        "by compressed-tensors",
    ),
    "FBGEMM": ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "FP8 by FBGEMM"),
    "ModelOpt, FP8": ({"quant_method": "modelopt", "quant_algo": "FP8"}, "FP8 by ModelOpt"),
    "ModelOpt, NVFP4": ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "NVFP4 by ModelOpt"),
    "mxfp4": ({"quant_method": "mxfp4"}, "(the weights are MXFP4)"),
    "torchao": ({"quant_method": "torchao", "quant_type": {"default": {}}}, "a form of torchao"),
    "HQQ": ({"quant_method": "hqq", "quant_config": {}}, "a few bits by HQQ"),
    "none that is known": ({"quant_method": "new" * 50}, f"an unknown form ({cut('new' * 50)})"),
    "no method": ({"bits": 4}, "an unknown form (None)"),
    "no text as method": ({"quant_method": ["awq"]}, "an unknown form (['awq'])"),
    "compressed-tensors, braces": (
        {"quant_method": "compressed-tensors", "format": "{x}", "config_groups": {"a": {}}},
        "format '{x}' by compressed-tensors",
    ),
    "compressed-tensors, an object as format": (
        {"quant_method": "compressed-tensors", "format": {"a": 1}, "config_groups": {"a": {}}},
        "by compressed-tensors",
    ),
    "compressed-tensors, no groups": (
        {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": 7},
        "config_groups is 7, not an object",
    ),
    "no object": ("awq" * 50, "an unknown form (awqawq"),
    "a list": ([{"quant_method": "awq"}], "an unknown form ([{'quant_method': 'awq'}])"),
}


@pytest.mark.parametrize("name", READ)
def test_fp8_in_these_forms_is_read(name: str) -> None:
    assert scheme_of(READ[name]) is not None
    assert ModelFacts.of(SHAPE | {"quantization_config": READ[name]}).not_built is None


@pytest.mark.parametrize("name", REFUSED)
def test_any_other_form_is_named_with_what_to_take_instead(name: str) -> None:
    config, words = REFUSED[name]
    with pytest.raises(SchemeNotBuilt) as caught:
        scheme_of(config)
    told = ModelFacts.of(SHAPE | {"quantization_config": config}).not_built
    assert told == str(caught.value)
    assert told.startswith("quantization_config")
    assert words in told
    assert told.endswith(f"; {INSTEAD}")
    assert len(told) < 400


@pytest.mark.parametrize("name", ["AWQ", "mxfp4", "compressed-tensors, braces", "no object", "a list"])
def test_a_model_that_transformers_computes_names_the_form(name: str) -> None:
    config, words = REFUSED[name]
    whole = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4}
    told = ModelFacts.of(whole | {"vocab_size": 99, "n_positions": 64, "quantization_config": config}).not_built
    assert told is not None
    assert "is not built for GPT2LMHeadModel, which runs by transformers (the weights are" in told
    assert words.strip("()").removeprefix("the weights are ") in told


def test_tensors_of_plain_weights_have_no_form() -> None:
    plain = ("model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias", "lm_head.weight", "d2t")
    assert [form_by_tensor(name) for name in plain] == [None] * 4
    assert form_by_tensor("model.layers.0.mlp.up_proj.qweight") == "INT4 or INT8 by GPTQ or AWQ"
