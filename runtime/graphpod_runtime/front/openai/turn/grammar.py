"""Grammars of turns: calls that are forced, calls that must fit their schemas, and reasoning before them."""

import json
import re
from typing import Any

from graphpod_runtime.front.openai.turn.tool_fields import Tool, ToolUse
from graphpod_runtime.front.requests.errors import invalid
from graphpod_runtime.front.text.turn.family import Family
from graphpod_runtime.front.text.turn.turn_parser import TurnForm
from graphpod_runtime.grammar.bounds import refuse_long
from graphpod_runtime.grammar.source import parsed
from graphpod_runtime.grammar.structural_tag import format_of
from graphpod_runtime.wire.messages import Grammar

Node = dict[str, Any]
"""A part of a structural tag."""

BLANKS: Node = {"type": "regex", "pattern": r"\s{0,4}"}
ANY_TEXT: Node = {"type": "any_text"}


def grammar_of_calls(use: ToolUse, family: Family, form: TurnForm) -> Grammar | None:
    """That of a turn that must call tools, or whose calls must be strict; None where any text will do."""
    if use.named is not None:
        [tool] = (tool for tool in use.tools if tool.function.name == use.named)
        return _tag(_after_reasoning(_schema(tool), form))
    if use.mode == "required":
        return _tag(_after_reasoning(_list_of_calls(use), form))
    if use.mode == "auto" and any(tool.function.strict for tool in use.tools):
        return _tag(_after_reasoning(_strict_calls(use, family), form))
    return None


def after_reasoning(grammar: Grammar, form: TurnForm) -> Grammar:
    """The same for the text after the reasoning that a turn may begin with. GrammarInvalid for one that cannot be
    taken apart."""
    if form.reasoning is None:
        return grammar
    refuse_long(grammar.text, grammar.kind)
    return _tag(_after_reasoning(_node_of(grammar), form), grammar.whitespace)


def _after_reasoning(node: Node, form: TurnForm) -> Node:
    tags = form.reasoning
    if tags is None:
        return node
    ends = [ANY_TEXT, _text(tags.closes), BLANKS, node]
    if form.thinks:
        return {"type": "sequence", "elements": ends}
    return {"type": "or", "elements": [{"type": "sequence", "elements": [_text(tags.opens), *ends]}, node]}


def _list_of_calls(use: ToolUse) -> Node:
    """As `forced.list_of_calls` reads it. Each schema stands alone, so that references within it hold."""
    tags = [
        {"begin": f'{{"name": {json.dumps(tool.function.name)}, "parameters": ', "content": _schema(tool), "end": "}"}
        for tool in use.tools
    ]
    calls = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": ", ",
        "at_least_one": True,
        "stop_after_first": not use.parallel,
    }
    return {"type": "sequence", "elements": [_text("["), calls, _text("]")]}


def _strict_calls(use: ToolUse, family: Family) -> Node:
    """Any text, in which calls fit the schemas of the strict tools. ApiError 400 for a family without such a form."""
    form = family.calls
    if form is None or form.strict is None:
        at = next(at for at, tool in enumerate(use.tools) if tool.function.strict)
        param = f"tools[{at}].function.strict"
        message = (
            f"{param} true is not built with tool_choice auto for this model: its calls are of a form that no grammar "
            "holds. Leave strict out, or force calls by tool_choice"
        )
        raise invalid(message, param=param, code="unsupported_parameter")
    begin, end = form.strict
    tags = [
        {
            "begin": begin.replace("NAME", tool.function.name),
            "content": _schema(tool) if tool.function.strict else {"type": "json_schema", "json_schema": OBJECT},
            "end": end,
        }
        for tool in use.tools
    ]
    return {"type": "triggered_tags", "triggers": [form.opens[0]], "tags": tags, "stop_after_first": not use.parallel}


OBJECT = {"type": "object"}


def _schema(tool: Tool) -> Node:
    return {"type": "json_schema", "json_schema": tool.schema_of_parameters}


def _text(value: str) -> Node:
    return {"type": "const_string", "value": value}


def _node_of(grammar: Grammar) -> Node:
    """A grammar as a part of a structural tag."""
    match grammar.kind:
        case "json_schema":
            return {"type": "json_schema", "json_schema": parsed(grammar.text)}
        case "json_object":
            return {"type": "json_schema", "json_schema": OBJECT}
        case "regex":
            return {"type": "regex", "pattern": grammar.text}
        case "choice":
            return {"type": "regex", "pattern": "|".join(map(re.escape, parsed(grammar.text)))}
        case "structural_tag":
            return format_of(parsed(grammar.text))
        case _:
            return {"type": "grammar", "grammar": grammar.text}


def _tag(node: Node, whitespace: str | None = None) -> Grammar:
    return Grammar("structural_tag", json.dumps({"format": node}), whitespace)
