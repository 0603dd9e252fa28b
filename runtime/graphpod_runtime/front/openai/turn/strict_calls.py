"""Any text in which calls fit the schemas of their tools, as a structural tag, for each family of formats.

A call is held from its first mark on: what a parser would read as the beginning of a call is one in the grammar, too.
So text may not hold the mark of a section, and where an answer may begin with a bare call no text begins like one.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_runtime.front.openai.turn.tool_fields import Tool, ToolUse
from graphpod_runtime.front.requests.errors import ApiError, invalid
from graphpod_runtime.front.text.turn import harmony
from graphpod_runtime.front.text.turn.family import Family
from graphpod_runtime.front.text.turn.formats import PythonCalls, Strict, TaggedCalls, ToolFormat

Node = dict[str, Any]
"""A part of a structural tag."""

OBJECT = {"type": "object"}
BLANKS: Node = {"type": "regex", "pattern": r"\s{0,4}"}
ANY_TEXT: Node = {"type": "any_text"}
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PYTHON_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
TAG_KEY = re.compile(r"[^\s\"'<>=]+")
PLAIN = frozenset(
    {"type", "properties", "required", "additionalProperties", "$defs", "definitions"}
    | {"title", "description", "$schema", "$comment", "examples", "default"}
)
"""Keywords of parameters that are written one by one."""
ANNOTATIONS = frozenset({"type", "title", "description", "$comment", "examples", "default", "deprecated"})
"""Keywords of a text that is written as it is, besides enum and const."""
DEFINITIONS = ("$defs", "definitions")


def strict_calls(use: ToolUse, family: Family) -> Node:
    """Any text, in which calls fit the schemas of the strict tools. ApiError 400 for a schema that the family's form
    cannot be held to.
    """
    if family.harmony_calls:
        return _harmony(use)
    form = family.calls
    assert form is not None, "a family whose calls are not known was refused"
    calls = [_calls(form, at, use) for at in range(len(form.opens))]
    free = {
        "type": "triggered_tags",
        "triggers": list(form.opens),
        "tags": [
            _tag(opens, of, _closing(form, at)) for at, (opens, of) in enumerate(zip(form.opens, calls, strict=True))
        ],
        "stop_after_first": not use.parallel,
    }
    if not form.closes:
        free["text_after"] = False  # it would be read as more calls
    if not form.bare:
        return free
    return _one_of([free | {"not_first": form.bare}, calls[0]])


def calls_alone(use: ToolUse, family: Family) -> Node:
    """Calls without text, one section or more, that fit the schemas of the strict tools. ApiError as `strict_calls`."""
    form = family.calls
    assert form is not None, "a family whose calls are not known was refused"
    sections = [
        _sequence([text(opens), _calls(form, at, use), text(_closing(form, at))]) for at, opens in enumerate(form.opens)
    ]
    if isinstance(form.calls, PythonCalls):
        sections.append(_calls(form, 0, use))  # a bare object would be an answer
    section = _one_of([_sequence([BLANKS, one]) for one in sections])
    more = [{"type": "star", "content": section}] if use.parallel else []
    return _sequence([section, *more])


def _closing(form: ToolFormat, at: int) -> str:
    """What ends a section of `opens[at]`, but for calls that end with it."""
    ended = isinstance(form.calls, TaggedCalls) and not form.calls.closes
    return form.closes[at] if form.closes and not ended else ""


def _calls(form: ToolFormat, at: int, use: ToolUse) -> Node:
    """What stands in a section of `opens[at]`; a call that has no end of its own ends with the section."""
    match form.calls:
        case PythonCalls(lines):
            calls = [_python_call(tool, number) for number, tool in enumerate(use.tools)]
            if form.opens[at] in lines:
                return _sequence([BLANKS, _several(calls, "\n", use), BLANKS])
            return _sequence([BLANKS, text("["), _several(calls, ", ", use), text("]")])
        case TaggedCalls() as tags:
            ends = text(tags.closes[0] if tags.closes else form.closes[at])
            calls = [_tagged_call(tags, tool, number, ends) for number, tool in enumerate(use.tools)]
            return _sequence([_several(calls, "" if tags.opens else None, use), *([BLANKS] if tags.closes else [])])
        case _:
            assert form.strict, f"{form.name} has a strict form"
            return _one_of([_json_calls(strict, use) for strict in form.strict])


def _json_calls(form: Strict, use: ToolUse) -> Node:
    """Calls whose arguments are one JSON object."""
    calls = [_json_call(form, tool) for tool in use.tools]
    if form.listed:
        return _sequence([BLANKS, text("["), _several(calls, ",", use), BLANKS, text("]"), BLANKS])
    return _sequence([_several(calls, form.between, use), BLANKS])


def _json_call(form: Strict, tool: Tool) -> Node:
    begin, number, end = form.before.replace("NAME", tool.function.name).partition("NUMBER")
    numbered = [{"type": "regex", "pattern": "[0-9]{1,3}"}, text(end)] if number else []
    return _sequence([BLANKS, text(begin), *numbered, _schema(tool), text(form.after)])


def _several(calls: list[Node], separator: str | None, use: ToolUse) -> Node:
    return {
        "type": "tags_with_separator",
        "tags": [_tag("", call, "") for call in calls],
        "separator": separator or "",
        "at_least_one": True,
        "stop_after_first": separator is None or not use.parallel,
    }


def _tag(begin: str, content: Node, end: str) -> Node:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _schema(tool: Tool) -> Node:
    """The arguments: of a tool that is not strict, any."""
    return json_schema(tool.schema_of_parameters if tool.function.strict else OBJECT)


def _harmony(use: ToolUse) -> Node:
    """Messages of channels; the last one is a call or the answer. What ends the turn is no part of it."""
    go_on = [text("<|end|>"), text("<|start|>"), text("assistant")]
    channels = _one_of([text(name) for name in ("analysis", "commentary", "final")])
    said = [text("<|channel|>"), channels, text(harmony.MESSAGE), ANY_TEXT]
    to = [
        _sequence([text(f"commentary to=functions.{tool.function.name} "), text("<|constrain|>"), text("json"),
                   text(harmony.MESSAGE), _schema(tool)])
        for tool in use.tools
    ]  # fmt: skip
    call = [text("<|channel|>"), _one_of(to)]
    return _sequence(
        [{"type": "star", "content": _sequence([*said, *go_on])}, _one_of([_sequence(said), _sequence(call)])]
    )


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    schema: Any
    required: bool
    where: str
    """Its path in the request."""


def _python_call(tool: Tool, at: int) -> Node:
    """`name(key=value, …)`. Values are JSON, which the parser reads as it reads Python's literals."""
    name = tool.function.name
    if not PYTHON_NAME.fullmatch(name):
        raise _unheld(at, "function.name", f"{name!r} is no name of Python, in which this model calls")
    if not tool.function.strict:
        values = {"type": "keyword_arguments", "any": True}
    else:
        values = {"type": "keyword_arguments", "arguments": [
            {"name": one.name, "required": one.required, "json_schema": one.schema}
            for one in _parameters(tool, at, IDENTIFIER)
        ]}  # fmt: skip
    return _sequence([text(f"{name}("), values, text(")")])


def _tagged_call(tags: TaggedCalls, tool: Tool, at: int, ends: Node) -> Node:
    """`opens NAME name_end (parameter KEY key_end VALUE value_end)* ends`, with blanks between the tags."""
    begin = [BLANKS, text("".join(tags.opens[:1]) + tool.function.name)]
    begin += [text(tags.name_ends[0])] if tags.opens else []
    if tool.function.strict:
        values = [_tagged_parameter(tags, one) for one in _parameters(tool, at, TAG_KEY)]
    else:
        key = {"type": "regex", "pattern": TAG_KEY.pattern}
        before = [BLANKS, text(tags.parameter), key, _one_of([text(end) for end in tags.key_ends])]
        values = [{"type": "star", "content": _sequence([*before, *_opened(tags), ANY_TEXT, text(tags.value_end)])}]
    return _sequence([*begin, *values, BLANKS, ends])


def _opened(tags: TaggedCalls) -> list[Node]:
    """What stands between a key's end and its value."""
    return [BLANKS, text(tags.value_open)] if tags.value_open else []


def _tagged_parameter(tags: TaggedCalls, one: _Parameter) -> Node:
    is_text = isinstance(one.schema, Mapping) and one.schema.get("type") == "string"
    key_end = (tags.text_keys if is_text else tags.json_keys) or tags.key_ends
    before = [BLANKS, text(tags.parameter + one.name + key_end[0]), *_opened(tags)]
    line = [text("\n")] if tags.trims else []
    value = [*_text_value(one), *line] if is_text else [json_schema(one.schema), *line]
    if value == [ANY_TEXT, *line]:
        value = [ANY_TEXT]  # whatever comes before the end, a line break too
    node = _sequence([*before, *line, *value, text(tags.value_end)])
    return node if one.required else {"type": "optional", "content": node}


def _text_value(one: _Parameter) -> list[Node]:
    """A string that stands without quotes."""
    schema = dict(one.schema)
    choices = [schema.pop("const")] if "const" in schema else schema.pop("enum", None)
    if kept := schema.keys() - ANNOTATIONS:
        raise _refused(one.where, f"{min(kept)} of a text is not kept in the form in which this model calls")
    if choices is None:
        return [ANY_TEXT]
    if not (isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices)):
        raise _refused(one.where, "enum and const of a text are strings")
    return [_one_of([text(choice) for choice in choices])]


def _parameters(tool: Tool, at: int, names: re.Pattern[str]) -> Iterator[_Parameter]:
    """Those of a strict tool whose form writes one after the other, in the order of the schema."""
    schema, where = tool.schema_of_parameters, "function.parameters"
    if other := schema.keys() - PLAIN:
        raise _unheld(at, where, f"{min(other)} of all parameters is not kept in the form in which this model calls")
    found, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(found, dict) or not isinstance(required, list) or not {*map(str, required)} <= found.keys():
        raise _unheld(at, where, "properties is an object that has all names of required")
    definitions = {name: schema[name] for name in DEFINITIONS if name in schema}
    for name, own in found.items():
        path = f"{where}.properties.{name}"
        if not names.fullmatch(name):
            raise _unheld(at, path, "the name is none in the form in which this model calls")
        references = _references(own)
        if not all(one.startswith(tuple(f"#/{word}/" for word in definitions)) for one in references):
            raise _unheld(at, path, f"a $ref is kept into {' and '.join(DEFINITIONS)} only")
        whole = own | definitions if isinstance(own, dict) and references else own
        yield _Parameter(name, whole, name in required, f"tools[{at}].{path}")


def _references(schema: Any) -> list[str]:
    """The references within a schema."""
    left, found = [schema], list[str]()
    while left:
        one = left.pop()
        if isinstance(one, dict):
            found += [str(one["$ref"])] if "$ref" in one else []
            left += one.values()
        elif isinstance(one, list):
            left += one
    return found


def _unheld(at: int, field: str, why: str) -> ApiError:
    return _refused(f"tools[{at}].{field}", why)


def _refused(param: str, why: str) -> ApiError:
    message = f"{param}: {why}. Change it, leave strict out, or force the call by tool_choice"
    return invalid(message, param=param, code="unsupported_parameter")


def json_schema(schema: Any) -> Node:
    """JSON that fits a schema."""
    return {"type": "json_schema", "json_schema": schema}


def text(value: str) -> Node:
    """This text."""
    return {"type": "const_string", "value": value}


def _sequence(elements: list[Node]) -> Node:
    flat: list[Node] = []
    for one in elements:
        flat += one["elements"] if one["type"] == "sequence" else [one]
    kept = [one for one in flat if one != text("")]
    return kept[0] if len(kept) == 1 else {"type": "sequence", "elements": kept}


def _one_of(elements: list[Node]) -> Node:
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": elements}
