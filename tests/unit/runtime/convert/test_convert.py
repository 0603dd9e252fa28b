"""The converter on a GGUF file made here: what comes out, and what it says when it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file
from tokenizers import Tokenizer

from graphpod_runtime.convert import ConvertError, Dtype, convert, main
from graphpod_runtime.convert.llama import LAYER
from tests.unit.runtime.convert.tiny import CONTEXT, HEADS, HIDDEN, KV_HEADS, LAYERS, SPECIAL, TEMPLATE, TOKENS, Tiny


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def test_every_weight_arrives_in_hugging_face_row_order(gguf: Path, tmp_path: Path) -> None:
    tiny = Tiny()
    convert(tiny.write(gguf), tmp_path / "out", Dtype.Float32)
    loaded = load_file(tmp_path / "out" / "model.safetensors")
    expected = tiny.weights()
    assert len(loaded) == 2 + LAYERS * len(LAYER)
    for layer in range(LAYERS):
        for gguf_name, name in LAYER.items():
            want = torch.from_numpy(expected[f"blk.{layer}.{gguf_name}"])
            assert torch.equal(loaded[f"model.layers.{layer}.{name}"], want), f"layer {layer}: {name}"
    assert torch.equal(loaded["model.embed_tokens.weight"], torch.from_numpy(expected["token_embd.weight"]))
    assert torch.equal(loaded["model.norm.weight"], torch.from_numpy(expected["output_norm.weight"]))


@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0, GGMLQuantizationType.F16])
def test_a_quantised_tensor_is_what_its_blocks_say(gguf: Path, tmp_path: Path, kind: GGMLQuantizationType) -> None:
    tiny = Tiny(quantization=kind)
    convert(tiny.write(gguf), tmp_path / "out", Dtype.Float32)
    loaded = load_file(tmp_path / "out" / "model.safetensors")["model.layers.1.mlp.down_proj.weight"]
    original = tiny.weights()["blk.1.ffn_down.weight"]
    assert np.array_equal(loaded.numpy(), dequantize(quantize(original, kind), kind))
    assert np.abs(loaded.numpy() - original).max() < 0.3


def test_bfloat16_is_the_rounded_float32(gguf: Path, tmp_path: Path) -> None:
    Tiny().write(gguf)
    convert(gguf, tmp_path / "single", Dtype.Float32)
    convert(gguf, tmp_path / "half")
    single = load_file(tmp_path / "single" / "model.safetensors")
    half = load_file(tmp_path / "half" / "model.safetensors")
    assert single.keys() == half.keys()
    assert all(torch.equal(half[name], single[name].bfloat16()) for name in single)


def test_the_config_describes_the_file(gguf: Path, tmp_path: Path) -> None:
    convert(Tiny().write(gguf), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model_type"] == "llama"
    assert (config["num_hidden_layers"], config["hidden_size"]) == (LAYERS, HIDDEN)
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (HEADS, KV_HEADS)
    assert config["head_dim"] == HIDDEN // HEADS
    assert config["max_position_embeddings"] == CONTEXT
    assert (config["rope_theta"], config["rms_norm_eps"]) == (100000.0, 1e-5)
    assert config["vocab_size"] == len(TOKENS)
    assert config["tie_word_embeddings"] is True
    assert config["torch_dtype"] == "bfloat16"
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert (generation["bos_token_id"], generation["eos_token_id"]) == (1, 2)


def test_a_file_with_its_own_output_matrix_is_untied(gguf: Path, tmp_path: Path) -> None:
    tiny = Tiny(untied=True)
    convert(tiny.write(gguf), tmp_path / "out", Dtype.Float32)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is False
    head = load_file(tmp_path / "out" / "model.safetensors")["lm_head.weight"]
    assert torch.equal(head, torch.from_numpy(tiny.weights()["output.weight"]))


def test_the_tokenizer_splits_digits_and_keeps_special_tokens_whole(gguf: Path, tmp_path: Path) -> None:
    convert(Tiny().write(gguf), tmp_path / "out")
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert tokenizer.encode("hell  12<|im_end|>").tokens == ["hell", "ĠĠ", "1", "2", "<|im_end|>"]
    text = "été 漢字 😀\n\t x"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert [tokenizer.token_to_id(token) for token in SPECIAL] == [0, 1, 2]
    config = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert (config["bos_token"], config["eos_token"], config["pad_token"]) == (SPECIAL[1], SPECIAL[2], SPECIAL[2])
    assert config["chat_template"] == TEMPLATE


@pytest.mark.parametrize(
    ("tiny", "words"),
    [
        (Tiny(architecture="gemma3"), ["architecture 'gemma3'", "only 'llama'"]),
        (Tiny(metadata={"tokenizer.ggml.model": "llama"}), ["tokenizer model 'llama'", "byte-level BPE"]),
        (Tiny(metadata={"tokenizer.ggml.pre": "qwen2"}), ["splitting rule 'qwen2'", "known: gpt-2, smollm"]),
        (Tiny(metadata={"tokenizer.ggml.add_bos_token": True}), ["adds a first token"]),
        (Tiny(metadata={"llama.context_length": None}), ["'llama.context_length' is missing"]),
        (Tiny(leave_out="blk.1.ffn_up.weight"), ["1 tensor(s) of a 2-layer Llama", "'blk.1.ffn_up.weight'"]),
        (Tiny(extra={"blk.0.attn_q.bias": np.zeros(HIDDEN, np.float32)}), ["'blk.0.attn_q.bias'", "biases"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_file_it_cannot_convert_is_named_with_its_reason(
    gguf: Path, tmp_path: Path, tiny: Tiny, words: list[str]
) -> None:
    tiny.write(gguf)
    with pytest.raises(ConvertError) as refused:
        convert(gguf, tmp_path / "out")
    for word in [str(gguf), *words]:
        assert word in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == [gguf.name], "nothing is left behind"


def test_another_kind_of_file_is_not_a_gguf(tmp_path: Path) -> None:
    other = tmp_path / "model.safetensors"
    other.write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    with pytest.raises(ConvertError, match="not a GGUF file"):
        convert(other, tmp_path / "out")


@pytest.mark.parametrize("share", [0.001, 0.3, 0.9])
def test_a_file_cut_short_is_damaged(gguf: Path, tmp_path: Path, share: float) -> None:
    Tiny().write(gguf)
    whole = gguf.read_bytes()
    gguf.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ConvertError, match="damaged, cut short"):
        convert(gguf, tmp_path / "out")


def test_a_tensor_type_nobody_knows_is_refused(gguf: Path, tmp_path: Path) -> None:
    Tiny().write(gguf)
    content = bytearray(gguf.read_bytes())
    # Tensor record: name, u32 dimensions, one u64 per dimension, u32 type.
    record = content.index(b"output_norm.weight") + len(b"output_norm.weight")
    content[record + 4 + 8 : record + 4 + 8 + 4] = (250).to_bytes(4, "little")
    gguf.write_bytes(content)
    with pytest.raises(ConvertError, match=r"250.* is not a valid GGMLQuantizationType"):
        convert(gguf, tmp_path / "out")


def test_a_folder_in_use_is_left_alone(gguf: Path, tmp_path: Path) -> None:
    Tiny().write(gguf)
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    with pytest.raises(ConvertError, match="exists and is not an empty folder"):
        convert(gguf, out)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


def test_the_folder_can_be_read_by_another_user(gguf: Path, tmp_path: Path) -> None:
    convert(Tiny().write(gguf), tmp_path / "out")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o755
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "out").iterdir()} == {0o644}


def test_the_command_prints_one_line_and_its_status(
    gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Tiny().write(gguf)
    command = ["--gguf", str(gguf), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    assert "20 tensors" in capsys.readouterr().out
    assert main(command) == 1
    assert capsys.readouterr().err.startswith(f"graphpod-engine convert: {tmp_path / 'out'}: exists")
