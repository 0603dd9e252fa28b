"""Where parsers write the parts of a turn."""

from collections.abc import Callable, Iterator
from itertools import groupby

from graphpod_runtime.front.text.turn.parts import CallArguments, CallBegun, Content, Part, Reasoning


class Writer:
    """Collects parts. Blank space around calls and reasoning belongs to their markup: it is left out. Without a call
    no other character is.
    """

    def __init__(self, new_id: Callable[[], str], *, calls: bool) -> None:
        """`new_id` names a call; `calls`: whether there may be some, so that blank space waits for what follows it."""
        self._new_id, self._holds = new_id, calls
        self._parts: list[Part] = []
        self._blank: list[str] = []
        self._trims = False
        """Whether blank space is left out until there is text."""
        self._calls = 0
        self.reasons = False
        """Whether what was written last is reasoning."""

    def taken(self) -> list[Part]:
        """The parts since the last time; texts of one kind that follow each other are one."""
        parts, self._parts = self._parts, []
        if len(parts) < 2:
            return parts
        return [part for key, run in groupby(parts, _kind) for part in _joined(key, run)]

    def content(self, text: str) -> None:
        """More text for the user."""
        self._write(text, Content, self._holds)

    def reasoning(self, text: str) -> None:
        """More of what the model thinks."""
        self._write(text, Reasoning, True)

    def call(self, name: str, id: str | None = None) -> None:
        """A call begins."""
        self.trim()
        self._parts.append(CallBegun(self._calls, id or self._new_id(), name))
        self._calls += 1

    def arguments(self, text: str) -> None:
        """More arguments of the latest call."""
        if text:
            self._parts.append(CallArguments(self._calls - 1, text))

    def trim(self) -> None:
        """Leaves out the blank space before this place and after it: one kind of part has ended."""
        self.reasons = False
        self._blank.clear()
        self._trims = True

    def end(self) -> None:
        """The turn ends: blank space that waits is text, unless it follows a call."""
        if self._calls == 0 and self._blank:
            self._parts.append(Content("".join(self._blank)))
        self._blank.clear()

    def _write(self, text: str, kind: type[Content] | type[Reasoning], holds: bool) -> None:
        self.reasons = kind is Reasoning
        if self._trims:
            text = text.lstrip()
        body = text.rstrip() if holds else text
        if body:
            said = "".join((*self._blank, body))
            self._blank.clear()
            self._trims = False
            self._parts.append(kind(said))
        if len(body) < len(text):
            self._blank.append(text[len(body) :])


def _kind(part: Part) -> tuple[type[Part], int]:
    """Equal for parts that are one."""
    return type(part), part.index if isinstance(part, CallBegun | CallArguments) else 0


def _joined(key: tuple[type[Part], int], run: Iterator[Part]) -> list[Part]:
    kind, index = key
    if kind is CallBegun:
        return list(run)
    text = "".join(part.text for part in run if not isinstance(part, CallBegun))
    return [
        CallArguments(index, text) if kind is CallArguments else Reasoning(text) if kind is Reasoning else Content(text)
    ]
