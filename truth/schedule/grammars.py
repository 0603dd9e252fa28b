"""Grammars of some requests of a scenario, over tokens that are single characters; and what they allow where."""

import functools
import json
from collections.abc import Sequence as List

from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from graphpod_runtime.grammar.compile import compiled
from graphpod_runtime.wire.messages import Grammar
from truth.models import BASE, VOCAB

Matchers = tuple[LLMatcher | None, ...]
"""Of requests in turn, each at the beginning of an answer; None: any text."""

GRAMMARS: tuple[Grammar | None, ...] = (
    Grammar("regex", "[a-z]{2,5}(-[a-z]{2,5})*"),
    None,
    Grammar("json_schema", json.dumps({"type": "array", "items": {"type": "integer"}, "maxItems": 4}), ""),
    Grammar("choice", json.dumps(["yes", "no", "yesterday"])),
    None,
)
"""Some end before the tokens do, and some never."""


@functools.cache
def vocabulary() -> LLTokenizer:
    """The tokens of every subject."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[:VOCAB]
    tokenizer = Tokenizer(models.BPE(vocab={letter: id for id, letter in enumerate(letters)}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return LLTokenizer(tokenizer.to_str(), n_vocab=VOCAB, eos_token=BASE["eos_token_id"])


@functools.cache
def matchers() -> Matchers:
    """Those of GRAMMARS."""
    return tuple(None if grammar is None else compiled(vocabulary(), grammar) for grammar in GRAMMARS)


def allowed(matcher: LLMatcher, answer: List[int]) -> set[int]:
    """The tokens that may follow `answer`, but those that end it."""
    at = matcher.deep_copy()
    if not at.consume_tokens(list(answer)):
        raise ValueError(f"{list(answer)} is no beginning of an answer in its grammar")
    bits = at.compute_bitmask()
    found = {token for token in range(VOCAB) if bits[token // 8] >> token % 8 & 1}
    return found - {BASE["eos_token_id"]}
