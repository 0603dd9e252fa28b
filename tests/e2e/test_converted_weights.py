"""The converted SmolLM2 against transformers reading the same GGUF file by itself."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from demo.weights import gguf_file
from graphpod_runtime.convert import Dtype, convert

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
TEXTS = [
    "What is the capital of France?",
    " one leading space",
    "   three leading spaces and a tab\t, a\nnewline\n\n and two",
    "emoji 😀 and a family 👩‍👩‍👧, zero width \u200b\ufeff",
    "漢字かな交じり文、한국어 텍스트, العربية, ẞ",
    "12345 1,234.56 3e-7 x2 a1b2",
    "it's, I'LL, don't",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "def f(x):\n    return  x + 1\n",
    "",
]


@pytest.fixture(scope="module")
def gguf() -> Path:
    return gguf_file()


@pytest.fixture(scope="module")
def folder(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("weights") / "smollm2"
    convert(gguf, out, Dtype.Float32)
    return out


@pytest.fixture(scope="module")
def ours(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def theirs(gguf: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


def test_the_tokenizer_gives_the_same_ids_and_text(
    ours: PreTrainedTokenizerBase, theirs: PreTrainedTokenizerBase
) -> None:
    for text in TEXTS:
        ids = ours(text)["input_ids"]
        assert ids == theirs(text)["input_ids"], text
        assert ours.decode(ids) == text
    chat = ours.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)
    assert chat == theirs.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)
    special = ["bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"]
    assert [getattr(ours, name) for name in special] == [getattr(theirs, name) for name in special]


def test_spaces_before_a_digit_stay_one_token_as_the_smollm_rule_says(ours: PreTrainedTokenizerBase) -> None:
    """Here transformers' GGUF reader differs: it does not apply the digit step the file asks for (pre = smollm)."""
    assert ours.convert_ids_to_tokens(ours("x   22 y")["input_ids"]) == ["x", "ĠĠĠ", "2", "2", "Ġy"]


def test_the_logits_are_those_of_the_same_weights(gguf: Path, folder: Path, ours: PreTrainedTokenizerBase) -> None:
    chat = ours.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)
    ids = ours(chat, return_tensors="pt")["input_ids"]
    reference = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    converted = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        want, got = reference(ids).logits, converted(ids).logits
    assert ((got - want).norm() / want.norm()).item() <= 1e-4
    assert torch.equal(got.argmax(-1), want.argmax(-1))
