"""Turns that a grammar forces to be calls: the arguments of one tool, or a list of calls."""

from graphpod_runtime.front.text.turn.calls import Tools, section
from graphpod_runtime.front.text.turn.formats import JsonCalls, ToolFormat
from graphpod_runtime.front.text.turn.source import NotRead, Reading, Source, marks
from graphpod_runtime.front.text.turn.writer import Writer

LIST = ToolFormat("", JsonCalls(), (), bare="[")


def arguments_alone(source: Source, writer: Writer, name: str) -> Reading[None]:
    """One call of `name`: the text is its arguments. It begins with its first value: an answer that was cut before
    is text.
    """
    source.record("")
    try:
        if (yield from source.spaces()) != "{":
            raise NotRead
        head, end = yield from source.short(marks(":", "}"), 1 << 16)
    except NotRead:
        writer.content(source.given_up())
        return
    source.forget()
    writer.call(name)
    head += end
    source.back(head)
    yield from source.value(writer.arguments)


def list_of_calls(source: Source, writer: Writer, tools: Tools) -> Reading[None]:
    """`[{"name": …, "parameters": {…}}, …]`. A call that was cut before its arguments is left out after others, and
    text where it is the first.
    """
    left: list[str] = []
    if not (yield from section(source, writer, LIST, tools, "", left.append)):
        writer.content("".join(left))
