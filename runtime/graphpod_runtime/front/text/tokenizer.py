"""Text to tokens and back for a model folder: `tokenizers` and the folder's chat template, no transformers."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from graphpod_runtime.base.files.json_file import JsonFileInvalid, json_object
from graphpod_runtime.base.files.regular_file import MOST_TEXT, check_regular
from graphpod_runtime.front.text.chat_template import WORDS, Ending, TemplateError, TemplateInvalid, read_template
from graphpod_runtime.front.text.control_tokens import ControlTokens
from graphpod_runtime.front.text.detokenize import (
    ByteDetokenizer,
    Detokenizer,
    NamingDetokenizer,
    TextDetokenizer,
)

# A call then computes in the thread that makes it: a pool shared by all calls would let short texts wait for long ones.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

REPLACEMENT = "\ufffd"
"""What a decoder writes for bytes that are no character, or not yet one."""
NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
"""The special tokens that chat templates know by name."""
BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
CHARACTERS = 32
"""Characters of a text for each token that it may have: languages have 2 to 5, code up to 10. A run of blanks has 64
and more, and a long one takes its tokenizer minutes.
"""
UNSETTLED_TOKENS, SHORTEST_LONGEST = 8, 32
"""Tokens before a cut through a text that the rest of the text may change; each taken as the vocabulary's longest, in
characters, of which there are at least as many as a stand-in for a control token has.
"""


def _byte_letters() -> dict[str, int]:
    """GPT-2's alphabet of bytes: printable ones stand for themselves, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


BYTES = _byte_letters()


class TokenizerInvalid(Exception):
    """The model folder has no usable tokenizer; the message names the file and what to do."""


class TextTooLong(ValueError):
    """The text has more tokens than `limit`, or so many characters that it is taken to have; it was not tokenized in
    full. `found` says what is known of its length.
    """

    def __init__(self, limit: int, found: str) -> None:
        super().__init__(f"more than {limit} tokens: {found}")
        self.limit, self.found = limit, found


def _ids(tokenizer: tokenizers.Tokenizer, text: str, *, specials: bool) -> list[int]:
    """The tokens of a text. Of the tokenizer's methods only those for batches let other threads run meanwhile."""
    return tokenizer.encode_batch_fast([text], add_special_tokens=specials)[0].ids


class Tokenizer:
    """Text to token ids and back, for one model. Its methods are safe to call from worker threads."""

    def __init__(self, folder: Path) -> None:
        """TokenizerInvalid for a missing or broken tokenizer.json, tokenizer_config.json or chat template."""
        if not folder.is_dir():
            raise TokenizerInvalid(f"{folder} is not a folder; correct the model's path")
        path = folder / "tokenizer.json"
        try:
            check_regular(path, MOST_TEXT)
        except FileNotFoundError as error:
            needs = "the model folder needs the tokenizer in tokenizers' own format"
            raise TokenizerInvalid(f"{path} is missing; {needs}") from error
        except OSError as error:
            words = f"{path} cannot be read: {error.strerror}; copy it again from the model's source"
            raise TokenizerInvalid(words) from error
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            raise TokenizerInvalid(
                f"{path} is no tokenizer: {str(error)[:WORDS]}; copy it again from the model's source"
            ) from error
        # Some models' files ask for a cut or padded prompt; here a long one is refused, never cut.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = _read_json(folder / "tokenizer_config.json")
        named = {name: token for name, token in config.items() if name in NAMED and token is not None}
        specials: dict[str, Any] = {
            name: token.get("content") if isinstance(token, dict) else token for name, token in named.items()
        }
        if wrong := next((name for name, text in specials.items() if not isinstance(text, str)), None):
            raise TokenizerInvalid(f"{folder / 'tokenizer_config.json'}: {wrong} is no text; correct it or take it out")
        try:
            self.template = read_template(folder, config, specials)
        except TemplateInvalid as error:
            raise TokenizerInvalid(f"the chat template in {folder} {error}") from error
        self._kind = _Decoder.of(self._tokenizer)
        self._specials = {id for id, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        self._spelled: dict[int, bytes] = {}
        """The bytes of tokens that have been read, of byte-level tokenizers."""
        self._control = ControlTokens(self._tokenizer)
        longest = max(map(len, self._tokenizer.get_vocab(with_added_tokens=True)), default=1)
        self._unsettled = UNSETTLED_TOKENS * max(longest, SHORTEST_LONGEST)

    def encode(self, text: str, limit: int | None = None, *, specials: bool = True) -> list[int]:
        """The tokens of a plain prompt, with those that the model's own template adds (a begin token) unless `specials`
        is false. TextTooLong for more than `limit` tokens.
        """
        self._check_length(self._tokenizer, text, limit)
        return _ids(self._tokenizer, text, specials=specials)

    def surrounded(self, ids: list[int]) -> list[int]:
        """`ids` of a text with the tokens that the model's own template adds to a text."""
        bare, whole = (_ids(self._tokenizer, "a", specials=specials) for specials in (False, True))
        before = next(at for at in range(len(whole)) if whole[at : at + len(bare)] == bare)
        return [*whole[:before], *ids, *whole[before + len(bare) :]]

    def encode_chat(
        self,
        messages: list[dict[str, Any]],
        variables: Mapping[str, Any] | None = None,
        limit: int | None = None,
        ending: Ending = Ending.Assistant,
        tools: Sequence[Any] = (),
    ) -> list[int]:
        """The tokens of a conversation, up to its `ending`; `variables` are the template's own
        (`enable_thinking`). What messages, variables and tools say is text, also where it spells a control token.
        TemplateError when the conversation cannot be written, TextTooLong for more than `limit` tokens.
        """
        template = self.template
        if template is None:
            raise TemplateError("the model has no chat template; use /v1/completions with a prompt instead")
        control, variables = self._control, dict(variables or {})
        if not any(map(control.typed_in, (messages, variables, tools))):
            text = template.render(messages, variables, ending, tools)
            self._check_length(self._tokenizer, text, limit)
            return _ids(self._tokenizer, text, specials=False)
        marked = template.render(control.marked(messages), control.marked(variables), ending, control.marked(tools))
        text = control.stood_in(marked)
        self._check_length(control.apart, text, limit)
        return control.exchanged(_ids(control.apart, text, specials=False))

    def longest_text(self, tokens: int) -> int:
        """Characters of the longest text that is expected to have so few tokens."""
        return CHARACTERS * tokens + self._unsettled

    def _check_length(self, tokenizer: tokenizers.Tokenizer, text: str, limit: int | None) -> None:
        """TextTooLong when a beginning of `text` alone has more than `limit` tokens, or the text more characters than
        any of `limit` tokens is expected to have. Beginnings of twice the length are tried in turn, so that what is
        refused costs the tokens of the context, not those of the text. Tokens near the cut do not count: the rest of
        the text may join them.
        """
        if limit is None:
            return
        if len(text) > self.longest_text(limit):
            raise TextTooLong(limit, f"{len(text)} characters, more than {CHARACTERS} for each token of the context")
        cut = 2 * limit + self._unsettled
        while cut < len(text):
            [found] = tokenizer.encode_batch([text[:cut]], add_special_tokens=False)
            place = found.token_to_chars(limit) if len(found) > limit else None
            if place is not None and place[1] <= cut - self._unsettled:
                counted = f"the first {cut} alone have {len(found)} tokens, and the rest was not counted"
                raise TextTooLong(limit, f"{len(text)} characters; {counted}")
            cut *= 2

    def token(self, id: int) -> str:
        """The text of one token, special ones by their name; U+FFFD where its bytes are no character."""
        return self._tokenizer.decode([id], skip_special_tokens=False)

    def bytes_of(self, id: int) -> bytes | None:
        """The bytes of one token; None where the tokenizer does not tell those of a part of a character."""
        text = self.token(id)
        if REPLACEMENT not in text:
            return text.encode()
        letters = self._tokenizer.id_to_token(id) or ""
        if found := BYTE_TOKEN.fullmatch(letters):
            return bytes.fromhex(found[1])
        return _spelled(letters)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` without special tokens; U+FFFD where bytes are no character."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    def spelled_out(self, ids: list[int]) -> str:
        """The text of `ids`, special tokens by their names; U+FFFD where bytes are no character."""
        return self._tokenizer.decode_batch([ids], skip_special_tokens=False)[0]

    def spelling(self, id: int) -> str:
        """One token as the vocabulary spells it; empty for an id that it does not have."""
        return self._tokenizer.id_to_token(id) or ""

    def id_of(self, spelling: str) -> int | None:
        """The one token that is spelled so."""
        return self._tokenizer.token_to_id(spelling)

    @property
    def specials(self) -> frozenset[int]:
        """The special tokens."""
        return frozenset(self._specials)

    def specials_named(self, names: Iterable[str]) -> frozenset[int]:
        """The special tokens of these names, as far as the tokenizer has them as such."""
        return frozenset(id for name in names if (id := self.id_of(name)) in self._specials and id is not None)

    def detokenizer(self, shown: frozenset[int] = frozenset()) -> Detokenizer:
        """For the tokens of one answer: all its pieces joined equal `decode` of all of them, with the names of the
        special tokens `shown`.
        """
        own = (
            ByteDetokenizer(self._text_bytes)
            if self._kind.byte_level
            else TextDetokenizer(self.decode, self._holds, self._is_text)
        )
        return NamingDetokenizer(own, {id: self.spelling(id) for id in shown}) if shown else own

    def _text_bytes(self, id: int) -> bytes:
        """What a token of a byte-level tokenizer adds to the text."""
        known = self._spelled.get(id)
        if known is None:
            letters = (self._is_text(id) and self._tokenizer.id_to_token(id)) or ""
            spelled = _spelled(letters)
            known = self._spelled[id] = letters.encode() if spelled is None else spelled
        return known

    def _is_text(self, id: int) -> bool:
        """Whether `decode` reads the token at all."""
        return id not in self._specials and self._tokenizer.id_to_token(id) is not None

    def _holds(self, id: int) -> bool:
        """Whether the text of a token that stands alone may be another one with those after it."""
        if self._kind.byte_tokens and BYTE_TOKEN.fullmatch(self._tokenizer.id_to_token(id) or ""):
            return True
        return self._kind.bytes_within and REPLACEMENT in self.token(id)


@dataclass(frozen=True, slots=True)
class _Decoder:
    """How a tokenizer writes what is no character: as letters that stand for bytes, alone (`byte_level`) or with other
    steps (`bytes_within`), or as `byte_tokens` like <0xC3>."""

    byte_level: bool
    bytes_within: bool
    byte_tokens: bool

    @classmethod
    def of(cls, tokenizer: tokenizers.Tokenizer) -> "_Decoder":
        decoder = json.loads(tokenizer.to_str())["decoder"] or {"type": None}
        steps = [step["type"] for step in decoder.get("decoders", [decoder])]
        return cls(steps == ["ByteLevel"], "ByteLevel" in steps, "ByteFallback" in steps)


def _spelled(letters: str) -> bytes | None:
    """The bytes that a byte-level token's letters stand for; None where one stands for none."""
    return bytes(BYTES[letter] for letter in letters) if BYTES.keys() >= set(letters) else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json_object(path) or {}
    except JsonFileInvalid as error:
        raise TokenizerInvalid(str(error)) from error
