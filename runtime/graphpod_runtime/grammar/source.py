"""A Grammar as llguidance reads it."""

import json
import re
from typing import Any

from llguidance import LLMatcher, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark

from graphpod_runtime.grammar.bounds import (
    MAX_BLANKS,
    MAX_OPTIONS,
    GrammarInvalid,
    refuse_costly,
    refuse_half_characters,
    refuse_long,
    refuse_many_rules,
    refuse_rules,
)
from graphpod_runtime.grammar.structural_tag import StructuralTag, escapes, quoted, schema_in_lark
from graphpod_runtime.wire.messages import Grammar

BLANKS = r"(?: |\r?\n[ \t]{0,40})?"
"""Between two tokens of JSON, where a request does not say: nothing, a space, or a new line with its indentation. JSON
allows any number, and small models go on with blanks until their tokens are used up.
"""

UNBOUNDED = re.compile(r"%(json|lark|regex|llguidance(?!\s*\{\s*\}))")
"""What llguidance's Lark can hold that the bounds do not see. In strings too: where one ends is for llguidance to
say."""


def source_of(grammar: Grammar, vocabulary: LLTokenizer) -> str:
    """The text for LLMatcher over `vocabulary`. GrammarInvalid where the grammar breaks a bound or its own syntax; what
    only the compiler sees is for `compiled`."""
    refuse_long(grammar.text, grammar.kind)
    match grammar.kind:
        case "json_schema":
            return _of_schema(parsed(grammar.text), grammar.whitespace)
        case "json_object":
            return _of_schema({"type": "object"}, grammar.whitespace)
        case "regex":
            return LLMatcher.grammar_from_regex(grammar.text)
        case "choice":
            return _of_choice(parsed(grammar.text))
        case "ebnf":
            return LLMatcher.grammar_from_lark(_as_lark(grammar.text))
        case "structural_tag":
            return _of_tags(parsed(grammar.text), vocabulary, grammar.whitespace)


def parsed(text: str) -> Any:
    """JSON. GrammarInvalid for what is none, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise GrammarInvalid("the JSON is nested too deeply") from error
    except ValueError as error:
        raise GrammarInvalid(f"the text is not JSON: {error}") from error


def _of_schema(schema: Any, whitespace: str | None) -> str:
    if not isinstance(schema, dict | bool):
        raise GrammarInvalid("a JSON schema is an object, true or false")
    if schema is False:
        raise GrammarInvalid("no value fits: the schema is false")
    if schema is True:
        schema = {}
    refuse_costly(schema)
    options = _blanks(whitespace) | escapes(schema)
    text = json.dumps(schema, ensure_ascii=False)
    refuse_half_characters(text, "the schema")
    return LLMatcher.grammar_from_json_schema(text, overrides=options)


def _blanks(whitespace: str | None) -> Any:
    if whitespace == "":
        return {"whitespace_flexible": False}
    if whitespace is not None and len(whitespace) > MAX_BLANKS:
        raise GrammarInvalid(f"the whitespace pattern has {len(whitespace)} characters; at most {MAX_BLANKS} fit")
    return {"whitespace_pattern": BLANKS if whitespace is None else whitespace}


def _of_choice(choices: Any) -> str:
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, str) for choice in choices):
        raise GrammarInvalid("choices are a list of strings, one or more")
    for choice in choices:
        refuse_half_characters(choice, "a choice")
    if len(choices) > MAX_OPTIONS:
        raise GrammarInvalid(f"there are {len(choices)} choices; at most {MAX_OPTIONS} fit")
    # One lexeme: as alternatives of rules 10 000 would take seconds.
    return LLMatcher.grammar_from_lark("start: CHOICE\nCHOICE: " + " | ".join(map(quoted, choices)))


def _as_lark(text: str) -> str:
    """A client's GBNF or Lark as Lark."""
    if found := UNBOUNDED.search(text):
        raise GrammarInvalid(f"a grammar cannot have {found[0]}; use json_schema or a structural tag")
    # The translation of GBNF takes time by the square of its rules.
    refuse_rules(text.count("::="))
    try:
        lark: str = any_to_lark(text)
    except RecursionError as error:
        raise GrammarInvalid("the grammar is nested too deeply") from error
    except Exception as error:
        raise GrammarInvalid(str(error)) from error
    refuse_many_rules(lark)
    return lark


def _of_tags(value: Any, vocabulary: LLTokenizer, whitespace: str | None) -> str:
    blanks = _blanks(whitespace)
    return StructuralTag(vocabulary, lambda schema: schema_in_lark(schema, blanks), _as_lark).source(value)
