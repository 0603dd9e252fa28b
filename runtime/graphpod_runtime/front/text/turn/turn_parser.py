"""One assistant's turn, from the text that the model writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_runtime.front.text.turn.calls import section
from graphpod_runtime.front.text.turn.forced import arguments_alone, list_of_calls
from graphpod_runtime.front.text.turn.formats import ReasoningFormat, ToolFormat
from graphpod_runtime.front.text.turn.harmony import harmony_turn
from graphpod_runtime.front.text.turn.parts import Part
from graphpod_runtime.front.text.turn.source import Reading, Source, marks
from graphpod_runtime.front.text.turn.writer import Writer


@dataclass(frozen=True, slots=True)
class TurnForm:
    """What a turn may hold, beyond text."""

    reasoning: ReasoningFormat | None = None
    thinks: bool = False
    """The prompt ends within reasoning."""
    calls: ToolFormat | None = None
    tools: Mapping[str, Mapping[str, Any]] | None = None
    """The schemas of the tools' parameters by name; None: text that looks like a call is text."""
    forced: str | None = None
    """A grammar forces calls: of the tool of this name, or of any for an empty one."""
    harmony: bool = False
    """The turn is messages of channels."""
    single: bool = False
    """Calls after the first are left out."""

    @property
    def is_text(self) -> bool:
        """Whether all of the turn is text."""
        return not (self.reasons or self.tools is not None)

    @property
    def reasons(self) -> bool:
        """Whether there may be reasoning."""
        return self.reasoning is not None or self.harmony


class TurnParser:
    """Reads one turn: the parts do not depend on how its text was cut into pieces."""

    def __init__(self, form: TurnForm, new_id: Callable[[], str]) -> None:
        self._source, self._writer = Source(), Writer(new_id, calls=form.tools is not None)
        self._reading: Reading[None] | None = _turn(form, self._source, self._writer)
        next(self._reading)

    def feed(self, text: str) -> list[Part]:
        """The parts that `text` completes."""
        if text:
            self._source.put(text)
            self._go_on()
        return self._writer.taken()

    @property
    def reasons(self) -> bool:
        """Whether the text so far ends within reasoning."""
        return self._writer.reasons

    def flush(self) -> list[Part]:
        """The rest, at the end of the turn."""
        self._source.end()
        self._go_on()
        assert self._reading is None, "a parser ends with its text"
        self._writer.end()
        return self._writer.taken()

    def _go_on(self) -> None:
        if self._reading is not None:
            try:
                next(self._reading)
            except StopIteration:
                self._reading = None


def _turn(form: TurnForm, source: Source, writer: Writer) -> Reading[None]:
    yield  # nothing has come
    if form.harmony:
        yield from harmony_turn(source, writer, calls=form.tools is not None)
    else:
        yield from _tagged_turn(form, source, writer)
    # What a parser leaves is text.
    yield from source.until(marks(), writer.content)


def _tagged_turn(form: TurnForm, source: Source, writer: Writer) -> Reading[None]:
    tools, calls = form.tools, form.calls if form.tools is not None and form.forced is None else None
    opens = calls.opens if calls else ()
    if form.reasoning:
        yield from _reasoning(form, form.reasoning, source, writer, calls)
    if tools is not None and form.forced is not None:
        if form.forced:
            return (yield from arguments_alone(source, writer, form.forced))
        return (yield from list_of_calls(source, writer, tools))
    if calls and tools is not None and calls.bare:
        source.record("")
        letter = yield from source.spaces()
        writer.content(source.given_up())
        if letter and letter in calls.bare:
            yield from section(source, writer, calls, tools, "", writer.content)
    while (mark := (yield from source.until(marks(*opens), writer.content))) is not None:
        assert calls is not None
        assert tools is not None
        yield from section(source, writer, calls, tools, mark, writer.content)


def _reasoning(
    form: TurnForm, reasoning: ReasoningFormat, source: Source, writer: Writer, calls: ToolFormat | None
) -> Reading[None]:
    """Reads the reasoning, if the turn begins with some. A call ends it, too."""
    source.record("")
    yield from source.spaces()
    opened = yield from source.literal(reasoning.opens)
    blank = source.given_up()
    if not (opened or form.thinks):
        return writer.content(blank)
    writer.trim()
    ends = marks(reasoning.closes, *(calls.opens if calls else ()))
    while (mark := (yield from source.until(ends, writer.reasoning))) not in (reasoning.closes, None):
        assert mark is not None
        assert calls is not None
        assert form.tools is not None
        if (yield from section(source, writer, calls, form.tools, mark, writer.reasoning)):
            return
    writer.trim()
