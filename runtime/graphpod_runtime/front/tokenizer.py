"""Tokenizer and chat template of a model folder: `tokenizers` and a jinja2 sandbox, no transformers."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.sandbox
import tokenizers

REPLACEMENT = "\ufffd"
"""What a decoder writes for bytes that are no character, or not yet one."""


def _byte_letters() -> dict[str, int]:
    """GPT-2's alphabet of bytes: printable ones stand for themselves, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


BYTES = _byte_letters()


class TokenizerInvalid(Exception):
    """The model folder has no usable tokenizer; the message names the file and what to do."""


class TemplateError(ValueError):
    """The chat template refused the messages, or the model has none: the client's mistake."""


class Tokenizer:
    """Text to token ids and back, for one model. Its methods are safe to call from worker threads."""

    def __init__(self, folder: Path) -> None:
        """TokenizerInvalid for a missing or broken tokenizer.json, tokenizer_config.json or chat template."""
        if not folder.is_dir():
            raise TokenizerInvalid(f"{folder} is not a folder; correct the model's path, or copy the model there")
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise TokenizerInvalid(f"{path} is missing; the model folder needs the tokenizer in tokenizers' own format")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            raise TokenizerInvalid(f"{path} is no tokenizer: {error}; copy it again from the model's source") from error
        # Some models' files ask for a cut or padded prompt; here a long one is refused, never cut.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = _read_json(folder / "tokenizer_config.json")
        self._specials = {
            name: token["content"] if isinstance(token, dict) else token
            for name, token in config.items()
            if name in ("bos_token", "eos_token", "unk_token", "pad_token") and token is not None
        }
        self._template = _template(folder, config)

    def encode(self, text: str) -> list[int]:
        """The tokens of a plain prompt, with those that the model's own template adds (a begin token)."""
        return self._tokenizer.encode(text).ids

    def encode_chat(self, messages: list[dict[str, Any]]) -> list[int]:
        """The tokens of a conversation, up to where the assistant speaks. TemplateError when it cannot be written."""
        if self._template is None:
            raise TemplateError("the model has no chat template; use /v1/completions with a prompt instead")
        try:
            text = self._template.render(messages=messages, add_generation_prompt=True, **self._specials)
        except jinja2.TemplateError as error:
            raise TemplateError(f"the model's chat template refused the messages: {error}") from error
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def token(self, id: int) -> str:
        """The text of one token, special ones by their name; U+FFFD where its bytes are no character."""
        return self._tokenizer.decode([id], skip_special_tokens=False)

    def bytes_of(self, id: int) -> bytes | None:
        """The bytes of one token; None where the tokenizer does not tell those of a part of a character."""
        text = self.token(id)
        if REPLACEMENT not in text:
            return text.encode()
        letters = self._tokenizer.id_to_token(id) or ""
        if found := re.fullmatch("<0x([0-9A-F]{2})>", letters):
            return bytes.fromhex(found[1])
        # Byte-level tokenizers write each byte as a letter of an alphabet of 256.
        return bytes(BYTES[letter] for letter in letters) if BYTES.keys() >= set(letters) else None

    def decode(self, ids: list[int]) -> str:
        """The text of `ids` without special tokens; U+FFFD where bytes are no character."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)


def _template(folder: Path, config: dict[str, Any]) -> jinja2.Template | None:
    path = folder / "chat_template.jinja"
    source = path.read_text(encoding="utf-8") if path.is_file() else config.get("chat_template")
    if isinstance(source, list):  # named templates; the one for plain chat is called default
        source = next((entry["template"] for entry in source if entry["name"] == "default"), None)
    if source is None:
        return None
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise TokenizerInvalid(f"the chat template in {folder} is not jinja2: {error}") from error


def _raise_exception(message: str) -> NoReturn:
    """What chat templates call to refuse a conversation."""
    raise jinja2.TemplateError(message)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise TokenizerInvalid(f"{path} is not JSON: {error}; copy it again from the model's source") from error
    if not isinstance(content, dict):
        raise TokenizerInvalid(f"{path} holds no JSON object")
    return content
