"""Calls as Python writes them: `f(a=1, b="x")`, keyword arguments that are literals, as JSON."""

import contextlib
import json
import re
from typing import Any

from graphpod_runtime.front.text.turn.source import NotRead, Reading, Source, marks

NAME = re.compile(r"[A-Za-z_][\w.-]*")
MAX_CALL = 64 << 10
"""Characters of one call, which is held until it is complete."""
MAX_DEPTH = 32
TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<number>-?\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?|-?\.\d+)"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<mark>[][(){},:=]))""",
    re.DOTALL,
)
WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": ""}


def python_call(source: Source) -> Reading[tuple[str, str]]:
    """One call: its name, and its arguments as JSON. NotRead for anything else."""
    name, end = yield from source.short(marks(*"([]{}'\",:;= \n"))
    if end != "(" or not NAME.fullmatch(name):
        raise NotRead
    text = yield from _balanced(source)
    try:
        said = json.dumps(_Literals(text).arguments(), ensure_ascii=False, allow_nan=False)
        said.encode()  # no half surrogate pairs
    except ValueError as error:
        raise NotRead from error
    return name, said


def _unescaped(escape: re.Match[str]) -> str:
    if code := escape[1] or escape[2]:
        return chr(int(code, 16))
    return ESCAPED.get(escape[3], escape[3] if escape[3] in "\\'\"" else escape[0])


def _string(text: str) -> str:
    """A string with its quotes. Between double ones it is JSON's where that is the same or Python has no meaning."""
    if text.startswith('"'):
        with contextlib.suppress(ValueError):
            return str(json.loads(text, strict=False))
    return ESCAPE.sub(_unescaped, text[1:-1])


def _balanced(source: Source) -> Reading[str]:
    """What stands before the bracket that closes the one taken last, which is taken too."""
    taken, depth, quote, size = list[str](), 1, "", 0
    letters = marks(*"\\'\"()[]{}")

    def keep(text: str) -> None:
        nonlocal size
        taken.append(text)
        size += len(text)
        if size > MAX_CALL:
            raise NotRead

    while True:
        letter = yield from source.until(letters, keep)
        if letter is None:
            raise NotRead
        if letter == "\\":
            if not (yield from source.peek()):
                raise NotRead
            keep(letter + source.take(1))
            continue
        if letter in "'\"":
            quote = "" if quote == letter else quote or letter
        elif not quote:
            depth += 1 if letter in "([{" else -1
            if depth == 0:
                return "".join(taken)
            if depth > MAX_DEPTH:
                raise NotRead
        keep(letter)


class _Literals:
    """A recursive reader, no deeper than MAX_DEPTH. ValueError for what is no literal."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            match = TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise ValueError(text[at : at + 10])
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        self._at = 0

    def arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._at < len(self._tokens):
            kind, key = self._next()
            if kind != "word" or self._next()[1] != "=":
                raise ValueError(key)
            found[key] = self._value(0)
            if self._at < len(self._tokens):
                self._expect(",")
        return found

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise ValueError("incomplete")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, mark: str) -> None:
        if self._next() != ("mark", mark):
            raise ValueError(mark)

    def _value(self, depth: int) -> Any:
        kind, text = self._next()
        if kind == "string":
            return _string(text)
        if kind == "number":
            return json.loads(text) if re.fullmatch(r"-?(0|[1-9]\d*)", text) else float(text)
        if kind == "word" and text in WORDS:
            return WORDS[text]
        if depth == MAX_DEPTH or text not in "([{" or kind != "mark":
            raise ValueError(text)
        return self._mapping(depth + 1) if text == "{" else self._items({"[": "]", "(": ")"}[text], depth + 1)

    def _items(self, close: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self._closes(close):
            found.append(self._value(depth))
            if not self._closes(close, stays=True):
                self._expect(",")
        return found

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._closes("}"):
            key = self._value(depth)
            if not isinstance(key, str):
                raise ValueError(key)
            self._expect(":")
            found[key] = self._value(depth)
            if not self._closes("}", stays=True):
                self._expect(",")
        return found

    def _closes(self, close: str, *, stays: bool = False) -> bool:
        """Whether the next token is `close`, which is taken unless it `stays`."""
        closed = self._next() == ("mark", close)
        if stays or not closed:
            self._at -= 1
        return closed
