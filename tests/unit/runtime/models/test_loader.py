"""A model folder that cannot be served says what is wrong, where, and what to do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.models.loader import load_model
from tests.unit.runtime.conftest import write_llama

WEIGHTS = "model.safetensors"


def edit(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def cut(folder: Path, share: float) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: int(len(data) * share)])


NORM = "model.norm.weight"
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), r"no \*\.safetensors file \(found config.json"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    "a broken config": (lambda folder: (folder / "config.json").write_text("{"), "not JSON"),
    "a config without layers": (lambda folder: edit(folder, num_hidden_layers=2), "layers.2.* has no place"),
    "truncated weights": (lambda folder: cut(folder, 0.5), "not a whole safetensors file"),
    "weights cut in the header": (lambda folder: cut(folder, 0.0001), "not a whole safetensors file"),
    "noise for weights": (
        lambda folder: (folder / WEIGHTS).write_bytes(b"\xff" * 4096),
        "not a whole safetensors file",
    ),
    "an unknown architecture": (lambda folder: edit(folder, architectures=["MambaForCausalLM"]), "'MambaForCausalLM'"),
    "another hidden size": (lambda folder: edit(folder, hidden_size=288), "has shape"),
    "a missing tensor": (
        lambda folder: rewrite(folder, lambda tensors: tensors.pop(NORM)),
        f"1 of 29 tensors are missing, first {NORM}",
    ),
    "a tensor of another model": (
        lambda folder: rewrite(folder, lambda tensors: tensors.update(extra=torch.zeros(2))),
        "tensor extra has no place",
    ),
    "a layer count that is not a number": (
        lambda folder: edit(folder, num_hidden_layers="three"),
        "config.json: a field has no usable value",
    ),
    "no layer count": (lambda folder: edit(folder, num_hidden_layers=None), "field 'num_hidden_layers' is missing"),
    "another activation": (lambda folder: edit(folder, hidden_act="gelu"), "hidden_act 'gelu' is not built"),
    "biases that are not there": (
        lambda folder: edit(folder, attention_bias=True),
        "12 of 41 tensors are missing, first model.layers.0.self_attn.k_proj.bias",
    ),
    "stretched positions": (
        lambda folder: edit(folder, rope_parameters={"rope_type": "ntk", "rope_theta": 1e4}),
        "rope type 'ntk' is not built",
    ),
    "stretched positions without their factor": (
        lambda folder: edit(folder, rope_parameters={"rope_type": "linear"}),
        "field 'factor' is missing",
    ),
    "positions in a part of each head": (
        lambda folder: edit(folder, partial_rotary_factor=0.5),
        "partial_rotary_factor=0.5 is not built for LlamaForCausalLM",
    ),
    "capped logits": (lambda folder: edit(folder, final_logit_softcapping=30.0), "final_logit_softcapping=30.0 is not"),
    "quantized weights": (
        lambda folder: edit(folder, quantization_config={"quant_method": "awq"}),
        "quantization_config of 'awq' is not built",
    ),
    "integers that config.json does not speak of": (
        lambda folder: rewrite(folder, lambda tensors: tensors.update({NORM: tensors[NORM].to(torch.int8)})),
        f"{NORM} is int8, where config.json says plain numbers; take the model's 16-bit weights",
    ),
    "packed weights that config.json does not speak of": (
        lambda folder: rewrite(folder, lambda tensors: tensors.update({"model.norm.qweight": torch.zeros(2)})),
        r"qweight is of weights in another form than config.json says \(INT4 or INT8 by GPTQ or AWQ\); take the",
    ),
    "windows of layers that are not there": (
        lambda folder: edit(folder, architectures=["Qwen2ForCausalLM"], use_sliding_window=True, layer_types=["x"]),
        "layer type 'x' is not built",
    ),
    "an index to nowhere": (
        lambda folder: (folder / "model.safetensors.index.json").write_text(
            '{"weight_map": {"a": "part-1.safetensors"}}'
        ),
        "part-1.safetensors: is missing, though model.safetensors.index.json lists it",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_named(tmp_path: Path, name: str) -> None:
    breaking, words = BROKEN[name]
    write_llama(tmp_path)
    breaking(tmp_path)
    with pytest.raises(ModelInvalid, match=words) as caught:
        load_model(tmp_path, torch.float32, 64)
    assert str(tmp_path) in str(caught.value)


def test_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelInvalid, match="no such folder; check the model's path"):
        load_model(tmp_path / "absent", torch.float32, 64)


def test_weights_in_several_files_load_as_one(tmp_path: Path) -> None:
    write_llama(tmp_path)
    whole = load_model(tmp_path, torch.float32, 64)
    tensors = load_file(tmp_path / WEIGHTS)
    (tmp_path / WEIGHTS).unlink()
    names = sorted(tensors)
    weight_map = {name: f"part-{index % 2}.safetensors" for index, name in enumerate(names)}
    for part in set(weight_map.values()):
        save_file({name: tensors[name] for name in names if weight_map[name] == part}, tmp_path / part)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    parts = load_model(tmp_path, torch.float32, 64)
    for (name, one), (_, other) in zip(
        whole.module().named_parameters(), parts.module().named_parameters(), strict=True
    ):
        assert torch.equal(one, other), name


def test_weights_are_converted_to_the_asked_dtype(tmp_path: Path) -> None:
    write_llama(tmp_path)
    model = load_model(tmp_path, torch.bfloat16, 64)
    assert {parameter.dtype for parameter in model.module().parameters()} == {torch.bfloat16}
    assert model.shape.eos_ids == (2,)


@pytest.mark.parametrize(
    ("generation", "config", "ids"),
    [
        ({"eos_token_id": [7, 8]}, 2, (7, 8)),
        ({"eos_token_id": 9}, 2, (9,)),
        ({"eos_token_id": [7, 1 << 30]}, 2, (7,)),
        (None, [3, 1 << 30], (3,)),
        ({"eos_token_id": 0}, 2, (0,)),
        ({"temperature": 0.6}, 2, (2,)),
        ({"eos_token_id": None}, [3, 4], (3, 4)),
        (None, 2, (2,)),
        (None, None, ()),
    ],
)
def test_end_tokens_are_those_of_the_generation_config_else_of_the_config(
    tmp_path: Path, generation: dict[str, object] | None, config: object, ids: tuple[int, ...]
) -> None:
    """Chat models end a turn with a token that only generation_config.json names (Llama-3: 128009 besides 128001)."""
    write_llama(tmp_path)
    edit(tmp_path, eos_token_id=config)
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert load_model(tmp_path, torch.float32, 64).shape.eos_ids == ids
