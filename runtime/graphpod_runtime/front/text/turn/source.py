"""The text of a turn as far as it has come, read by parsers that wait for more.

A parser is a generator: it yields when it needs more text, and goes on where it stood. So each character is looked at
a fixed number of times, however the text was cut.
"""

import json
import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeVar

Result = TypeVar("Result")
Reading = Generator[None, None, Result]
"""Yields for more text, returns what was read."""
Emit = Callable[[str], None]

SPACE = re.compile(r"\s*")
STRUCTURE = re.compile(r'["\[\]{}]|[^\s\w+.,:-]')
"""What matters outside of strings: quotes, brackets, and what no JSON has there."""
IN_STRING = re.compile(r'[\\"]')
SCALAR = re.compile(r"[-+.\w]*")
MAX_NAME = 256
"""Characters of a tool's or a parameter's name."""


class NotRead(Exception):
    """The text is not what the parser expects; what it has taken since `record` is text."""


class Marks:
    """Strings to look for, none the beginning of another. A text's tail that may begin one is found, too."""

    def __init__(self, marks: tuple[str, ...]) -> None:
        self.found = re.compile("|".join(map(re.escape, sorted(marks, key=len, reverse=True))) or r"(?!)")
        self._begun = frozenset(mark[:size] for mark in marks for size in range(1, len(mark)))
        self._firsts = frozenset(mark[0] for mark in marks)
        self._longest = max(map(len, marks), default=1)

    def tail(self, text: str, start: int) -> int:
        """Where the tail of `text` begins that may become a mark; its length where none does."""
        for at in range(max(start, len(text) - self._longest + 1), len(text)):
            if text[at] in self._firsts and text[at:] in self._begun:
                return at
        return len(text)


@lru_cache(maxsize=256)
def marks(*texts: str) -> Marks:
    """The Marks of these texts."""
    return Marks(texts)


class Source:
    """Text that comes in pieces."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._ended = False
        self._taken: list[str] | None = None

    def put(self, text: str) -> None:
        """More of it."""
        self._text, self._at = self._text[self._at :] + text, 0

    def end(self) -> None:
        """No more will come."""
        self._ended = True

    def record(self, before: str) -> None:
        """Remembers what is taken from here on; `before` has been taken already."""
        self._taken = [before]

    def forget(self) -> None:
        """Ends the record."""
        self._taken = None

    def given_up(self) -> str:
        """All that was taken since `record`, and ends the record."""
        taken, self._taken = self._taken or [], None
        return "".join(taken)

    def take(self, size: int) -> str:
        """The next characters, which have come."""
        taken = self._text[self._at : self._at + size]
        self._at += size
        if self._taken is not None:
            self._taken.append(taken)
        return taken

    def back(self, text: str) -> None:
        """Puts back what was taken last."""
        self._text, self._at = text + self._text[self._at :], 0
        if self._taken is not None:
            self._taken = ["".join(self._taken)[: -len(text)]]

    def peek(self) -> Reading[str]:
        """The next character; empty at the end."""
        while self._at == len(self._text):
            if self._ended:
                return ""
            yield
        return self._text[self._at]

    def spaces(self) -> Reading[str]:
        """Takes blank space; returns the character after it, which stays."""
        while True:
            match = SPACE.match(self._text, self._at)
            if match and match.end() > self._at:
                self.take(match.end() - self._at)
            if self._at < len(self._text) or self._ended:
                return (yield from self.peek())
            yield

    def literal(self, *texts: str) -> Reading[str | None]:
        """Takes the one of `texts` that stands here; None takes nothing."""
        while True:
            fits = []
            for text in texts:
                if self._text.startswith(text, self._at):
                    self.take(len(text))
                    return text
                if text.startswith(self._text[self._at : self._at + len(text)]):
                    fits.append(text)
            if not fits or self._ended:
                return None
            texts = tuple(fits)
            yield

    def until(self, ends: Marks, emit: Emit) -> Reading[str | None]:
        """Emits the text before the first of `ends` as it comes; takes and returns that one, None at the end."""
        while True:
            match = ends.found.search(self._text, self._at)
            stop = match.start() if match else ends.tail(self._text, self._at)
            if self._ended and not match:
                stop = len(self._text)
            if stop > self._at:
                emit(self.take(stop - self._at))
            if match:
                return self.take(match.end() - self._at)
            if self._ended:
                return None
            yield

    def short(self, ends: Marks, most: int = MAX_NAME) -> Reading[tuple[str, str]]:
        """The text before the first of `ends`, at most `most` characters, and that end. NotRead without one."""
        taken = list[str]()
        length = 0

        def keep(text: str) -> None:
            nonlocal length
            taken.append(text)
            length += len(text)
            if length > most:
                raise NotRead

        end = yield from self.until(ends, keep)
        if end is None:
            raise NotRead
        return "".join(taken), end

    def string(self) -> Reading[str]:
        """Takes a JSON string and returns what it says. NotRead for anything else."""
        if (yield from self.peek()) != '"':
            raise NotRead
        taken = list[str]()
        yield from self.value(taken.append)
        try:
            said = json.loads("".join(taken), strict=False)
            str(said).encode()  # no half surrogate pairs
        except ValueError as error:
            raise NotRead from error
        if not isinstance(said, str):
            raise NotRead
        return said

    def value(self, emit: Emit) -> Reading[bool]:
        """Emits one JSON value as it comes: a string, a number or word, or all up to the bracket that closes its first
        one, whichever kinds they are. It ends before a character that no JSON has there. Whether it was complete.
        """
        first = yield from self.peek()
        if first not in ('"', "{", "["):
            return (yield from self._scalar(emit))
        depth, inside = 0, False
        while True:
            at = self._at
            while at < len(self._text):
                match = (IN_STRING if inside else STRUCTURE).search(self._text, at)
                if match is None:
                    at = len(self._text)
                    break
                letter = match[0]
                if letter == "\\":
                    if match.end() == len(self._text):
                        at = match.start()  # what it escapes has not come
                        break
                    at = match.end() + 1
                    continue
                at = match.end()
                if letter == '"':
                    inside = not inside
                elif letter not in "[]{}":
                    emit(self.take(match.start() - self._at))
                    return False
                else:
                    depth += 1 if letter in "{[" else -1
                if depth == 0 and not inside:
                    emit(self.take(at - self._at))
                    return True
            if self._ended:
                at = len(self._text)
            if at > self._at:
                emit(self.take(at - self._at))
            if self._ended:
                return False
            yield

    def _scalar(self, emit: Emit) -> Reading[bool]:
        some = False
        while True:
            match = SCALAR.match(self._text, self._at)
            assert match
            if match.end() > self._at:
                emit(self.take(match.end() - self._at))
                some = True
            if self._at < len(self._text) or self._ended:
                return some
            yield
