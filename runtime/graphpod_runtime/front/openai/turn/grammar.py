"""Grammars of turns: calls that are forced, calls that must fit their schemas, and reasoning before them."""

import json
import re

from graphpod_runtime.front.openai.turn.strict_calls import (
    ANY_TEXT,
    BLANKS,
    OBJECT,
    Node,
    calls_alone,
    json_schema,
    strict_calls,
    text,
)
from graphpod_runtime.front.openai.turn.tool_fields import Tool, ToolUse
from graphpod_runtime.front.text.turn.family import Family
from graphpod_runtime.front.text.turn.turn_parser import TurnForm
from graphpod_runtime.grammar.bounds import refuse_long
from graphpod_runtime.grammar.source import parsed
from graphpod_runtime.grammar.structural_tag import format_of
from graphpod_runtime.wire.messages import Grammar


def grammar_of_calls(use: ToolUse, family: Family, form: TurnForm) -> Grammar | None:
    """That of a turn that must call tools, or whose calls must be strict; None where any text will do."""
    if use.named is not None:
        [tool] = (tool for tool in use.tools if tool.function.name == use.named)
        return _tag(_after_reasoning(_schema(tool), form))
    if use.mode == "required":
        return _tag(_after_reasoning(_list_of_calls(use), form))
    if use.mode == "auto" and any(tool.function.strict for tool in use.tools):
        # Where calls may end the reasoning, they are held there, too.
        return _tag(_after_reasoning(strict_calls(use, family), form, at_once=True))
    return None


def after_reasoning(grammar: Grammar, form: TurnForm) -> Grammar:
    """The same for the text after the reasoning that a turn may begin with. GrammarInvalid for one that cannot be
    taken apart."""
    if form.reasoning is None:
        return grammar
    refuse_long(grammar.text, grammar.kind)
    return _tag(_after_reasoning(_node_of(grammar), form), grammar.whitespace)


def answer_or_calls(grammar: Grammar, use: ToolUse, family: Family, form: TurnForm) -> Grammar:
    """That of a turn that is an answer of this grammar, or calls tools of the request and says nothing else.
    GrammarInvalid and ApiError as `after_reasoning` and `strict_calls`."""
    refuse_long(grammar.text, grammar.kind)
    node = {"type": "or", "elements": [_node_of(grammar), calls_alone(use, family)]}
    return _tag(_after_reasoning(node, form), grammar.whitespace)


def _after_reasoning(node: Node, form: TurnForm, *, at_once: bool = False) -> Node:
    """`at_once`: `node` may also come where reasoning has begun and was not closed."""
    tags = form.reasoning
    if tags is None:
        return node
    ends = [ANY_TEXT, text(tags.closes), BLANKS, node]
    closed = {"type": "sequence", "elements": ends if form.thinks else [text(tags.opens), *ends]}
    return {"type": "or", "elements": [closed, node]} if at_once or not form.thinks else closed


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
    return {"type": "sequence", "elements": [text("["), calls, text("]")]}


def _schema(tool: Tool) -> Node:
    return json_schema(tool.schema_of_parameters)


def _node_of(grammar: Grammar) -> Node:
    """A grammar as a part of a structural tag."""
    match grammar.kind:
        case "json_schema":
            return json_schema(parsed(grammar.text))
        case "json_object":
            return json_schema(OBJECT)
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
