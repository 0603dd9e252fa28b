"""Structural tags as Lark: text in which what stands between two strings must fit a schema.

A tag may be written in both forms that vLLM and SGLang take: `triggers` and `structures`, or xgrammar's `format`, of
which the types in TYPES are known.
"""

import json
from collections.abc import Callable
from typing import Any

from llguidance import LLTokenizer, regex_to_lark

from graphpod_runtime.grammar.bounds import (
    MAX_DEPTH,
    GrammarInvalid,
    refuse_costly,
    refuse_half_characters,
    refuse_many_rules,
)

MAX_PARTS = 4096
"""Of one structural tag."""
MAX_TAGS = 512
"""Of one part: triggers, tags, elements or arguments."""
MAX_STRING = 4096
"""Characters of a trigger, a begin, an end, a value or a separator."""
EXPRESSIONS = ("pattern", "grammar")
"""Strings with bounds of their own."""
SHARED = ("json_schema", "tags_with_separator")
"""Parts that may be large, and stand in several places: there they are the same."""
TEXT = "TEXT"
"""The terminal of any text."""

Schema = Callable[[Any], str]
"""A JSON schema as Lark."""
Nested = Callable[[str], str]
"""A grammar in GBNF or Lark as Lark."""


class StructuralTag:
    """One, being translated."""

    def __init__(self, vocabulary: LLTokenizer, schema: Schema, nested: Nested) -> None:
        self._vocabulary, self._schema, self._nested = vocabulary, schema, nested
        self._rules = [f"{TEXT}: /(.|\\n)*/"]
        self._grammars: list[dict[str, str]] = []
        self._shared: dict[str, str] = {}
        """Expressions by the JSON of their parts."""
        self._beginnings: dict[str, str] = {}
        """By the characters that a text does not begin with, its terminal."""
        self._parts = self._nested_rules = 0

    def source(self, value: Any) -> str:
        """The text for LLMatcher. GrammarInvalid for what is not known, or wrong."""
        start = self._node(format_of(value), 0)
        lark = "\n".join(["%llguidance {}", f"start: {start}", *self._rules])
        return json.dumps({"grammars": [{"name": "start", "lark_grammar": lark}, *self._grammars]})

    def _node(self, node: Any, depth: int) -> str:
        """A part as a Lark expression that stands for itself."""
        self._parts += 1
        if depth > MAX_DEPTH or self._parts > MAX_PARTS:
            raise GrammarInvalid(f"a structural tag has at most {MAX_PARTS} parts in {MAX_DEPTH} levels")
        kind = node.get("type") if isinstance(node, dict) else None
        if kind in SHARED:
            key = json.dumps(node)
            if key not in self._shared:
                self._shared[key] = self._made(node, kind, depth)
            return self._shared[key]
        return self._made(node, kind, depth)

    def _made(self, node: Any, kind: Any, depth: int) -> str:
        match kind:
            case "const_string":
                return self._literal(_string(node, "value"))
            case "json_schema":
                return self._schema(node.get("json_schema"))
            case "regex":
                return f"/{regex_to_lark(_string(node, 'pattern'))}/"
            case "grammar":
                return self._grammar(_string(node, "grammar"))
            case "any_text":
                return self._any_text(node)
            case "sequence":
                return self._sequence(_list(node, "elements"), depth)
            case "or":
                return self._rule(" | ".join(self._node(one, depth + 1) for one in _list(node, "elements")))
            case "tag":
                return self._sequence(_of_tag(node), depth)
            case "triggered_tags":
                return self._triggered(node, depth)
            case "tags_with_separator":
                return self._separated(node, depth)
            case "optional":
                return f"({self._node(node.get('content'), depth + 1)})?"
            case "star":
                return self._rule(f"({self._node(node.get('content'), depth + 1)})*")
            case "keyword_arguments":
                return self._keyword_arguments(node)
        raise GrammarInvalid(f"a part of a structural tag has type {kind!r}; known are {', '.join(TYPES)}")

    def _sequence(self, elements: list[Any], depth: int) -> str:
        """Any text goes on to the first occurrence of the string that follows it."""
        parts: list[str] = []
        flat = [inner for one in elements for inner in _flat(one)]
        for at, one in enumerate(flat):
            after_text = at > 0 and flat[at - 1].get("type") == "any_text"
            if after_text and one.get("type") == "const_string" and _string(one, "value"):
                parts[-1] = self._text_up_to(_string(one, "value"), self._any_text(flat[at - 1]))
            else:
                parts.append(self._node(one, depth + 1))
        return self._rule(" ".join(part for part in parts if part) or '""')

    def _triggered(self, node: dict[str, Any], depth: int) -> str:
        """Any text in which each trigger begins a tag. `not_first`: characters by which it does not begin; `text_after`
        false: after a tag there are tags only.
        """
        triggers, tags = [*map(_text, _list(node, "triggers"))], _list(node, "tags")
        followers: dict[str, list[str]] = {}
        for tag in tags:
            begin, *rest = _of_tag(tag)
            opening = _string(begin, "value")
            trigger = next((one for one in triggers if one and opening.startswith(one)), None)
            if trigger is None:
                raise GrammarInvalid(f"the tag {opening[:40]!r} begins with none of the triggers")
            left = [{"type": "const_string", "value": opening[len(trigger) :]}, *rest]
            followers.setdefault(trigger, []).append(self._sequence(left, depth + 1))
        rules = {trigger: self._rule(" | ".join(followed)) for trigger, followed in followers.items()}
        after, head = node.get("text_after") is not False, self._any_text(node)

        def each(before: Callable[[str], str]) -> str:
            return self._rule(" | ".join(f"{before(trigger)} {rule}" for trigger, rule in rules.items()))

        first = each(lambda trigger: self._text_up_to(trigger, head))
        tail = TEXT if after else '""'
        if node.get("stop_after_first"):
            return first if node.get("at_least_one") else f"({first} | {head})"
        more = first if after and head == TEXT else each(self._text_up_to if after else self._literal)
        some = f"{first} {more}* {tail}"
        return self._rule(some if node.get("at_least_one") else f"{head} | {some}")

    def _separated(self, node: dict[str, Any], depth: int) -> str:
        tag = self._rule(" | ".join(self._sequence(_of_tag(one), depth + 1) for one in _list(node, "tags")))
        many = tag
        if not node.get("stop_after_first"):
            many = self._rule(f"{tag} ({self._literal(_string(node, 'separator'))} {tag})*")
        return many if node.get("at_least_one") else f"({many})?"

    def _any_text(self, node: dict[str, Any]) -> str:
        """Any text; where it has `not_first`, blanks and then none of these characters."""
        first = _string(node, "not_first") if "not_first" in node else ""
        if not first:
            return TEXT
        if first not in self._beginnings:
            name = self._beginnings[first] = f"{TEXT}_{len(self._beginnings)}"
            letters = "".join(f"\\x{{{ord(letter):x}}}" for letter in first)
            self._rules.append(f"{name}: /\\s*([^\\s{letters}](.|\\n)*)?/")
        return self._beginnings[first]

    def _keyword_arguments(self, node: dict[str, Any]) -> str:
        """`a=1, b="x"`: each once, in the order of `arguments`, the required ones always; `any` stands for all."""
        if node.get("any"):
            one = self._rule(f'/[A-Za-z_][A-Za-z0-9_]*/ "=" {self._schema(True)}')
            return f'({one} (", " {one})*)?'
        first = more = '""'
        self._parts += len(node.get("arguments") or ())
        for given in reversed(_list(node, "arguments") if node.get("arguments") else []):
            value = self._rule(f"{quoted(_string(given, 'name') + '=')} {self._schema(given.get('json_schema'))}")
            begun = f"{value} {more}"
            first = self._rule(begun if given.get("required") else f"{begun} | {first}")
            more = self._rule(f'", " {begun}' if given.get("required") else f'", " {begun} | {more}')
        return first

    def _text_up_to(self, end: str, text: str = TEXT) -> str:
        """Any text, and the first `end` in it."""
        parts = self._split(end)
        if isinstance(parts[0], int):
            return self._rule(f"{text} {self._literal(end)}")
        if len(parts) > 1:
            raise GrammarInvalid(f"{end[:40]!r} after any text holds a special token, but does not begin with it")
        return self._rule(f"{text} {quoted(parts[0])}", "[lazy]")

    def _literal(self, text: str) -> str:
        """A string; special tokens of the vocabulary in it are those tokens, which have no text."""
        parts = (part for part in self._split(text) if part != "")
        return " ".join(f"<[{part}]>" if isinstance(part, int) else quoted(part) for part in parts)

    def _split(self, text: str) -> list[int | str]:
        """The text between special tokens, and their ids."""
        parts, left = list[int | str](), text
        for token in filter(self._vocabulary.is_special_token, self._vocabulary.tokenize_str(text, parse_special=True)):
            before, _, left = left.partition(self._vocabulary.decode_str([token]))
            parts += [before, token] if before else [token]
        return [*parts, left] if left or not parts else parts

    def _rule(self, body: str, options: str = "") -> str:
        name = f"part_{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def _grammar(self, text: str) -> str:
        lark = self._nested(text)
        self._nested_rules = refuse_many_rules(lark, self._nested_rules)
        name = f"grammar_{len(self._grammars)}"
        self._grammars.append({"name": name, "lark_grammar": lark})
        return f"@{name}"


TYPES = (
    "const_string", "json_schema", "regex", "grammar", "any_text", "sequence", "or", "tag", "triggered_tags",
    "tags_with_separator",
)  # fmt: skip
"""Of the parts of a `format`."""


def format_of(value: Any) -> dict[str, Any]:
    """The `format` of either form."""
    if not isinstance(value, dict):
        raise GrammarInvalid("a structural tag is an object")
    if value.get("format") is not None:
        format = value["format"]
        if not isinstance(format, dict):
            raise GrammarInvalid("the format of a structural tag is an object")
        return format
    tags = [
        {
            "begin": _string(one, "begin"),
            "content": {"type": "json_schema", "json_schema": one.get("schema", {})},
            "end": _string(one, "end"),
        }
        for one in _list(value, "structures")
    ]
    return {"type": "triggered_tags", "triggers": _list(value, "triggers"), "tags": tags}


def _of_tag(tag: Any) -> list[dict[str, Any]]:
    end = tag.get("end") if isinstance(tag, dict) else None
    if isinstance(end, list):
        raise GrammarInvalid("the end of a tag is one string; a list of ends is not supported")
    return [
        {"type": "const_string", "value": _string(tag, "begin")},
        tag.get("content"),
        {"type": "const_string", "value": _string(tag, "end")},
    ]


def _flat(node: Any) -> list[dict[str, Any]]:
    """A tag within a sequence is three elements of it, so that text before it ends where it begins."""
    if not isinstance(node, dict):
        raise GrammarInvalid("the parts of a structural tag are objects")
    return _of_tag(node) if node.get("type") == "tag" else [node]


def _list(node: Any, name: str) -> list[Any]:
    found = node.get(name) if isinstance(node, dict) else None
    if not isinstance(found, list) or not found or len(found) > MAX_TAGS:
        raise GrammarInvalid(f"{name} of a structural tag is a list of 1 to {MAX_TAGS}")
    return found


def _string(node: Any, name: str) -> str:
    return _text(node.get(name) if isinstance(node, dict) else None, name)


def _text(found: Any, name: str = "a trigger") -> str:
    if not isinstance(found, str):
        raise GrammarInvalid(f"{name} of a structural tag is a string")
    if name not in EXPRESSIONS and len(found) > MAX_STRING:
        raise GrammarInvalid(f"{name} of a structural tag has {len(found)} characters; at most {MAX_STRING} fit")
    refuse_half_characters(found, f"{name} of a structural tag")
    return found


def quoted(text: str) -> str:
    """A string of Lark."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def schema_in_lark(schema: Any, options: dict[str, Any]) -> str:
    """A JSON schema within Lark."""
    if not isinstance(schema, dict | bool):
        raise GrammarInvalid("a JSON schema is an object, true or false")
    refuse_costly(schema)
    if isinstance(schema, bool):
        if not schema:
            raise GrammarInvalid("no value fits: the schema is false")
        schema = {}
    return f"%json {json.dumps(schema | {'x-guidance': options | escapes(schema)})}"


def escapes(schema: Any) -> dict[str, Any]:
    """llguidance's option for escapes in strings. A letter has one spelling, so that no name of a property comes twice
    by another one; a schema that itself holds a control character needs its number.
    """
    needed = "\\u00" in json.dumps(schema, ensure_ascii=False)
    return {} if needed else {"json_allowed_escapes": 'nrbtf\\"'}
