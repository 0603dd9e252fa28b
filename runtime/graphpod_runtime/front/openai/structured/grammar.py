"""From the fields of a request to the grammar of its answer."""

import json
from collections.abc import Iterator

from graphpod_runtime.front.openai.structured.check import in_words
from graphpod_runtime.front.openai.structured.request import (
    ResponseFormat,
    SchemaOrText,
    StructuredFields,
    StructuredOutputs,
)
from graphpod_runtime.front.requests.errors import invalid
from graphpod_runtime.grammar.bounds import refuse_long
from graphpod_runtime.grammar.source import parsed
from graphpod_runtime.wire.messages import Grammar

Named = tuple[str, Grammar]
"""A grammar, and the field that asks for it."""


def grammar_of(request: StructuredFields) -> Named | None:
    """The grammar that a request asks for; None: its answer is any text. ApiError 400 for two of them, or for a field
    without the one it needs. Whether the grammar can be used is for GrammarCheck.
    """
    asked = list(_asked(request))
    if request.guided_whitespace_pattern is not None and request.guided_json is None:
        message = "guided_whitespace_pattern is only allowed with guided_json"
        raise invalid(message, param="guided_whitespace_pattern")
    if len(asked) > 1:
        message = f"{asked[0][0]} and {asked[1][0]} both say what the answer must be; send one of them"
        raise invalid(message, param=asked[1][0])
    return asked[0] if asked else None


def _asked(request: StructuredFields) -> Iterator[Named]:
    if request.response_format is not None and (grammar := _of_format(request.response_format)) is not None:
        yield "response_format", grammar
    if request.structured_outputs is not None:
        yield from _of_outputs(request.structured_outputs)
    if request.guided_json is not None:
        yield "guided_json", _schema(request.guided_json, request.guided_whitespace_pattern)
    if request.guided_choice is not None:
        yield "guided_choice", Grammar("choice", json.dumps(request.guided_choice))
    if request.json_schema is not None:
        yield "json_schema", _schema(request.json_schema)
    for name, kind in (
        ("guided_regex", "regex"), ("guided_grammar", "ebnf"), ("regex", "regex"), ("ebnf", "ebnf"),
        ("structural_tag", "structural_tag"),
    ):  # fmt: skip
        if (text := getattr(request, name)) is not None:
            yield name, Grammar(kind, text)  # type: ignore[arg-type]


def _of_format(format: ResponseFormat) -> Grammar | None:
    match format.type:
        case "text":
            return None
        case "json_object":
            return Grammar("json_object") if format.schema_ is None else _schema(format.schema_)
        case "json_schema":
            if format.json_schema is None:
                param = "response_format.json_schema"
                message = "response_format of type json_schema needs json_schema, an object with name and schema"
                raise invalid(message, param=param, code="missing_required_parameter")
            return _schema(format.json_schema.schema_)
        case "structural_tag":
            parts = {"triggers": format.triggers, "structures": format.structures, "format": format.format}
            return Grammar(
                "structural_tag", json.dumps({name: part for name, part in parts.items() if part is not None})
            )


def _of_outputs(outputs: StructuredOutputs) -> Iterator[Named]:
    blanks = "" if outputs.disable_any_whitespace else outputs.whitespace_pattern
    given: list[Named] = []
    if outputs.json_ is not None:
        schema = _closed(outputs.json_) if outputs.disable_additional_properties else outputs.json_
        given.append(("json", _schema(schema, blanks)))
    if outputs.json_object:
        given.append(("json_object", Grammar("json_object", whitespace=blanks)))
    if outputs.regex is not None:
        given.append(("regex", Grammar("regex", outputs.regex)))
    if outputs.choice is not None:
        given.append(("choice", Grammar("choice", json.dumps(outputs.choice))))
    if outputs.grammar is not None:
        given.append(("grammar", Grammar("ebnf", outputs.grammar)))
    if outputs.structural_tag is not None:
        given.append(("structural_tag", Grammar("structural_tag", outputs.structural_tag, blanks)))
    if not given:
        message = "structured_outputs needs one of json, json_object, regex, choice, grammar, structural_tag"
        raise invalid(message, param="structured_outputs")
    return ((f"structured_outputs.{name}", grammar) for name, grammar in given)


def _schema(schema: SchemaOrText, blanks: str | None = None) -> Grammar:
    return Grammar("json_schema", schema if isinstance(schema, str) else json.dumps(schema), blanks)


def _closed(schema: SchemaOrText) -> SchemaOrText:
    """A copy in which objects that name properties have no others, unless they say so. ApiError 400 for a text that is
    not JSON, or too long to be read here."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with in_words("structured_outputs.json"):
        refuse_long(text, "schema")
        closed = parsed(text)
    left = [closed]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            if isinstance(part.get("properties"), dict) or isinstance(part.get("patternProperties"), dict):
                part.setdefault("additionalProperties", False)
            left += part.values()
        elif isinstance(part, list):
            left += part
    return closed  # type: ignore[no-any-return]
