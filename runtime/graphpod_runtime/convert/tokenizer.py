"""The tokenizer inside a GGUF file -> tokenizer.json and tokenizer_config.json."""

import json
from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from graphpod_policy.model.shown import cut
from graphpod_runtime.convert.problem import ConvertError
from graphpod_runtime.convert.source import AGAIN, Source

# llama.cpp's llama-vocab.cpp names the splitting rule of each model; "smollm" first cuts out every single digit and
# then applies GPT-2's expression, the order of the published SmolLM2 tokenizer. transformers' own GGUF reader leaves
# the digit step out, which shows only where several spaces stand before a digit.
PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
}

CONTROL, USER_DEFINED = 3, 4  # gguf TokenType: text that is cut out whole before merging

SPECIAL = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}


def special_ids(source: Source) -> dict[str, int]:
    """{"bos": id, ...} for the special tokens the file names."""
    found = {word: source.get(f"tokenizer.ggml.{key}") for word, key in SPECIAL.items()}
    return {word: int(token) for word, token in found.items() if token is not None}


def tokenizer(source: Source) -> Tokenizer:
    """The fast tokenizer; ConvertError for a kind of vocabulary or splitting rule that is not known here."""
    kind = source.need("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ConvertError(
            f"{source.path}: tokenizer model {kind!r} cannot be converted, only byte-level BPE ('gpt2') can; "
            "use the model's safetensors folder as it is published"
        )
    rule = source.need("tokenizer.ggml.pre")
    if rule not in PRE_TOKENIZERS:
        raise ConvertError(
            f"{source.path}: splitting rule {rule!r} of the tokenizer is not known "
            f"(known: {', '.join(sorted(PRE_TOKENIZERS))}); guessing it would change tokens silently"
        )
    if source.get("tokenizer.ggml.add_bos_token", False):
        raise ConvertError(f"{source.path}: a tokenizer that adds a first token by itself is not converted")
    tokens: list[str] = source.need("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in source.need("tokenizer.ggml.merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    try:
        result = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    except Exception as error:  # the library has no narrower one
        raise ConvertError(f"{source.path}: its vocabulary is none ({cut(str(error))}); {AGAIN}") from error
    result.pre_tokenizer = PRE_TOKENIZERS[rule]()
    result.decoder = decoders.ByteLevel()
    types: list[int] = source.need("tokenizer.ggml.token_type")
    result.add_special_tokens(_added(tokens, types, CONTROL))
    result.add_tokens(_added(tokens, types, USER_DEFINED))
    return result


def tokenizer_config(source: Source, context: int) -> dict[str, Any]:
    """tokenizer_config.json: special tokens by their text, the chat template, the context in tokens."""
    tokens: list[str] = source.need("tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        **{f"{word}_token": tokens[index] for word, index in special_ids(source).items()},
    }
    if template := source.get("tokenizer.chat_template"):
        config["chat_template"] = template
    return config


def tokenizer_json(source: Source) -> str:
    """The text of tokenizer.json."""
    return json.dumps(json.loads(tokenizer(source).to_str()), ensure_ascii=False, indent=1)


def _added(tokens: list[str], types: list[int], kind: int) -> list[AddedToken]:
    special = kind == CONTROL
    return [
        AddedToken(token, special=special, normalized=False)
        for token, of_kind in zip(tokens, types, strict=True)
        if of_kind == kind
    ]
