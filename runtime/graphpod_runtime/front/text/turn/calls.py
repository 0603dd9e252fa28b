"""Reads sections of calls, of any format in the table. What is no call is text; a call that has begun stays one."""

import json
import re
from collections.abc import Mapping
from typing import Any

from graphpod_runtime.front.text.turn.formats import JsonCalls, NamedCalls, PythonCalls, TaggedCalls, ToolFormat
from graphpod_runtime.front.text.turn.python_calls import python_call
from graphpod_runtime.front.text.turn.source import MAX_NAME, Emit, NotRead, Reading, Source, marks
from graphpod_runtime.front.text.turn.writer import Writer

NAME = re.compile(r"[^\s\"'<>{}\[\]()|]+")
KIMI = re.compile(r"(?:functions\.)?(.+):\d+")
MAX_HELD = 64 << 10
"""Characters of arguments that wait for their call's name, which stands behind them."""
ARGUMENT_KEYS = ("arguments", "parameters")
OTHER_KEYS = ("type", "id", "index")
"""Fields of a call besides its name and arguments."""
WORDS = {"True": "true", "False": "false", "None": "null"}
"""Python's, which models write for JSON's."""

Tools = Mapping[str, Mapping[str, Any]]
"""A request's tools: the schema of each one's parameters, by name."""


def section(source: Source, writer: Writer, form: ToolFormat, tools: Tools, opened: str, text: Emit) -> Reading[bool]:
    """Reads the calls after `opened`, which has been taken; empty where an answer begins with a call. What is no call
    goes to `text`. Whether there were calls.
    """
    source.record(opened)
    made, listed, over = 0, False, False
    try:
        while True:
            letter = yield from source.spaces()
            if form.closes and (yield from source.literal(*form.closes)):
                if not made:
                    raise NotRead
                source.forget()
                return True
            if over or not letter:
                raise NotRead
            if made and letter in form.separators:
                source.take(1)
            elif letter == "[" and not (made or listed) and not isinstance(form.calls, TaggedCalls):
                source.take(1)
                listed = True
            elif letter == "]" and listed and made:
                source.take(1)
                over = True
                source.record("")
            else:
                closed = yield from _call(source, writer, form, tools, known=not opened)
                made += 1
                source.record("")
                if closed:
                    source.forget()
                    return True
                over = isinstance(form.calls, NamedCalls) and not (form.calls.opens or listed)
    except NotRead:
        text(source.given_up())
        return made > 0


def _call(source: Source, writer: Writer, form: ToolFormat, tools: Tools, *, known: bool) -> Reading[bool]:
    """Reads one call; whether that ended its section. NotRead before the call has begun. `known`: its name must be a
    tool's.
    """
    letter = yield from source.peek()
    match form.calls:
        case JsonCalls():
            yield from _json_call(source, writer, tools, known)
        case NamedCalls(json_too=True) if letter == "{":
            yield from _json_call(source, writer, tools, known)
        case NamedCalls() as calls:
            yield from _named_call(source, writer, calls)
        case TaggedCalls() as calls:
            return (yield from _tagged_call(source, writer, calls, form.closes, tools))
        case PythonCalls():
            name, arguments = yield from python_call(source)
            if known and name not in tools:
                raise NotRead
            _begin(source, writer, name)
            writer.arguments(arguments)
    return False


def _begin(source: Source, writer: Writer, name: str, id: str | None = None) -> None:
    """What was taken so far is a call for good."""
    source.forget()
    writer.call(name, id)


def _json_call(source: Source, writer: Writer, tools: Tools, known: bool) -> Reading[None]:
    if (yield from source.literal("{")) is None:
        raise NotRead
    name, waiting, begun, given = "", list[str](), False, False
    size = 0

    def hold(text: str) -> None:
        nonlocal size
        waiting.append(text)
        size += len(text)
        if size > MAX_HELD:
            raise NotRead

    while (letter := (yield from source.spaces())) == '"':
        key = yield from _key(source)
        if key == "name" and not begun:
            name = yield from source.string()
            if not 0 < len(name) <= MAX_NAME or (known and name not in tools):
                raise NotRead
        elif key in ARGUMENT_KEYS and not given:
            kind = yield from source.peek()
            if name and kind == "{":
                _begin(source, writer, name)
                begun = given = True
                if not (yield from source.value(writer.arguments)):
                    return
            elif kind in ("{", '"', "n"):
                if not (yield from source.value(hold)):
                    raise NotRead
                given = True
            else:
                raise NotRead
        elif not (begun or key in OTHER_KEYS) or not (yield from source.value(_nothing)):
            break
        if (yield from source.spaces()) != ",":
            break
        source.take(1)
    letter = yield from source.spaces()
    if begun:
        if letter == "}":
            source.take(1)
        return
    if letter != "}" or not name:
        raise NotRead
    source.take(1)
    arguments = _waited("".join(waiting))
    _begin(source, writer, name)
    writer.arguments(arguments)


def _key(source: Source) -> Reading[str]:
    """A field's name and the colon after it."""
    key = yield from source.string()
    if (yield from source.spaces()) != ":":
        raise NotRead
    source.take(1)
    yield from source.spaces()
    return key


def _waited(text: str) -> str:
    """Arguments that came before the name, or as a string that holds JSON, or not at all."""
    if not text or text == "null":
        return "{}"
    if text.startswith('"'):
        try:
            text = json.loads(text, strict=False).strip() or "{}"
            text.encode()  # no half surrogate pairs
        except ValueError as error:
            raise NotRead from error
    if not text.startswith("{"):
        raise NotRead
    return text


def _named_call(source: Source, writer: Writer, calls: NamedCalls) -> Reading[None]:
    if calls.opens and (yield from source.literal(*calls.opens)) is None:
        raise NotRead
    braces = ("{",) if calls.brace_ends_name else ()
    head, end = yield from source.short(marks(*calls.name_ends, *braces))
    head = head.strip()
    id = None
    if end == "[CALL_ID]":
        id, end = yield from source.short(marks("[ARGS]", "{"))
    if end == "{":
        source.back(end)
    if native := KIMI.fullmatch(head):
        id, head = head, native[1]
    if not NAME.fullmatch(head) or (yield from source.spaces()) != "{":
        raise NotRead
    _begin(source, writer, head, id)
    if (yield from source.value(writer.arguments)):
        if calls.tails:
            yield from source.spaces()
            yield from source.literal(*calls.tails)
        if calls.closes:
            yield from source.spaces()
            yield from source.literal(*calls.closes)


def _tagged_call(
    source: Source, writer: Writer, calls: TaggedCalls, closes: tuple[str, ...], tools: Tools
) -> Reading[bool]:
    if calls.opens and (yield from source.literal(*calls.opens)) is None:
        raise NotRead
    ends = (*calls.closes, *closes)
    name, tag = yield from source.short(marks(*calls.name_ends, calls.parameter, *ends))
    name = name.strip()
    if not NAME.fullmatch(name):
        raise NotRead
    _begin(source, writer, name)
    properties = tools.get(name, {}).get("properties")
    separator = "{"
    while True:
        if tag in calls.name_ends or tag == calls.value_end:
            if not (yield from source.spaces()):
                return False
            tag = (yield from source.literal(calls.parameter, *ends)) or ""
        if tag != calls.parameter:
            writer.arguments("}" if separator == ", " else "{}")
            return tag in closes
        source.record(tag)
        try:
            key, key_end = yield from source.short(marks(*calls.key_ends))
            if calls.value_open:
                yield from source.spaces()
                if (yield from source.literal(calls.value_open)) is None:
                    raise NotRead
        except NotRead:
            writer.arguments("}" if separator == ", " else "{}")
            raise
        source.forget()
        writer.arguments(f"{separator}{json.dumps(key.strip(), ensure_ascii=False)}: ")
        separator = ", "
        schema = properties.get(key.strip()) if isinstance(properties, Mapping) else None
        is_text = isinstance(schema, Mapping) and schema.get("type") == "string" and key_end not in calls.json_keys
        if not (yield from _value(source, writer, calls, is_text or key_end in calls.text_keys)):
            return False
        tag = calls.value_end


def _value(source: Source, writer: Writer, calls: TaggedCalls, is_text: bool) -> Reading[bool]:
    """A parameter's value and its end; whether that came."""
    if calls.trims:
        yield from source.literal("\n")
    if not is_text:
        held = list[str]()
        if (yield from source.until(marks(calls.value_end), held.append)) is None:
            return False
        writer.arguments(_json_of("".join(held), trims=calls.trims))
        return True
    writer.arguments('"')
    last = ""

    def write(text: str) -> None:
        nonlocal last
        text, last = last + text, ""
        if calls.trims and text.endswith("\n"):
            text, last = text[:-1], "\n"
        writer.arguments(json.dumps(text, ensure_ascii=False)[1:-1])

    if (yield from source.until(marks(calls.value_end), write)) is None:
        return False
    writer.arguments('"')
    return True


def _json_of(text: str, *, trims: bool) -> str:
    """JSON as it is, other text as a string."""
    bare = text.strip()
    bare = WORDS.get(bare, bare)
    try:
        json.loads(bare, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(text.removesuffix("\n") if trims else text, ensure_ascii=False)
    return bare


def _refuse(word: str) -> None:
    raise ValueError(word)


def _nothing(text: str) -> None:
    """For a field that calls do not carry."""
