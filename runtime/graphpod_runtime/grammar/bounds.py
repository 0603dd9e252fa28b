"""What a client's grammar may cost: bounds on its text, and llguidance's own limits.

Measured with llguidance 1.9 on one core: within these bounds the slowest schema found compiled in 0.4 s, the slowest
regular expression in 0.1 s, and a step's mask took 35 ms at most (480 optional properties of one object).
What llguidance itself gives up is an error of the one request.
"""

import re
from typing import Any

import llguidance

MAX_CHARACTERS = 512 << 10
"""Of a grammar's text. A Kubernetes Deployment with all definitions written out has 450 000."""
MAX_DEPTH = 64
"""Levels of lists and objects of a schema."""
MAX_PROPERTIES = 1000
"""Of one object. The time to compile grows with their square."""
MAX_OPTIONAL = 480
"""Of them, properties that may be left out: each is four items of a row of the parser, which LIMITS bounds. More would
be compiled, and fail where the answer opens the object."""
MAX_OPTIONS = 10_000
"""Entries of one enum or list of choices."""
MAX_REFERENCES = 500
"""`$ref`s of a schema, and as many definitions. llguidance recurses for each of a chain."""
MAX_RULES = 500
"""Rules and terminals of a Lark or EBNF text. llguidance recurses for each of a chain."""
MAX_MULTIPLE = 10_000
"""Of `multipleOf`: its expression has as many states."""
MAX_BLANKS = 256
"""Characters of the expression for blanks."""
EXTENSION = "x-guidance"
"""llguidance's own keyword. It switches checks off, so a client may not use it."""

DEFINITIONS = ("$defs", "definitions")
"""Keywords whose entries are only used by reference."""
DEFINING = re.compile(r"\s*(?:[^|/#\s].*)?:")
"""A line of Lark that may define a rule or a terminal: each begins a line, which alternatives and comments do not."""

LIMITS = llguidance.LLParserLimits(
    max_items_in_row=2000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=50_000,
    max_grammar_size=500_000,
    verbose_errors=False,
)
"""Fuel is counted, not timed, so the same grammar is refused everywhere. A lexer state takes 1 kB to 2 kB."""


class GrammarInvalid(ValueError):
    """The grammar cannot be used; the message says why, for the client."""


def refuse_long(text: str, what: str) -> None:
    """GrammarInvalid for a text above MAX_CHARACTERS."""
    if len(text) > MAX_CHARACTERS:
        raise GrammarInvalid(f"the {what} has {len(text)} characters; at most {MAX_CHARACTERS} are compiled")


def refuse_half_characters(text: str, what: str) -> None:
    """GrammarInvalid for half a surrogate pair, which JSON can spell and no answer can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise GrammarInvalid(f"{what} holds half a surrogate pair at character {error.start}") from None


def refuse_many_rules(lark: str, before: int = 0) -> int:
    """The rules and terminals of a text of Lark, and of those `before` it. GrammarInvalid above MAX_RULES."""
    return refuse_rules(before + sum(DEFINING.match(line) is not None for line in lark.splitlines()))


def refuse_rules(count: int) -> int:
    """That many rules and terminals. GrammarInvalid above MAX_RULES."""
    if count > MAX_RULES:
        raise GrammarInvalid(f"the grammar has {count} rules and terminals; at most {MAX_RULES} fit")
    return count


def refuse_costly(schema: Any) -> None:
    """GrammarInvalid for a JSON schema, already parsed, that would take too long or too much memory."""
    level, references, definitions = [schema], 0, 0
    for depth in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                _refuse_object(value)
                references += "$ref" in value
                definitions += sum(len(value[name]) for name in DEFINITIONS if isinstance(value.get(name), dict))
                below += value.values()
            elif isinstance(value, list):
                below += value
        for count, what in ((references, "references"), (definitions, "definitions")):
            if count > MAX_REFERENCES:
                raise GrammarInvalid(f"the schema has {count} {what} or more; at most {MAX_REFERENCES} fit")
        level = [value for value in below if isinstance(value, dict | list)]
        if not level:
            return
        if depth == MAX_DEPTH:
            break
    raise GrammarInvalid(f"the schema is nested in more than {MAX_DEPTH} levels; use $defs and $ref to flatten it")


def _refuse_object(schema: dict[str, Any]) -> None:
    if EXTENSION in schema:
        raise GrammarInvalid(f"the schema has {EXTENSION!r}, which switches checks off; leave it out")
    properties, options, multiple = schema.get("properties"), schema.get("enum"), schema.get("multipleOf")
    if isinstance(properties, dict):
        if (count := len(properties)) > MAX_PROPERTIES:
            raise GrammarInvalid(f"an object of the schema has {count} properties; at most {MAX_PROPERTIES} fit")
        required = schema.get("required")
        named = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
        if (optional := len(properties.keys() - named)) > MAX_OPTIONAL:
            raise GrammarInvalid(
                f"an object of the schema has {optional} properties that are not in 'required'; at most "
                f"{MAX_OPTIONAL} fit"
            )
    if isinstance(options, list) and len(options) > MAX_OPTIONS:
        raise GrammarInvalid(f"an enum of the schema has {len(options)} values; at most {MAX_OPTIONS} fit")
    least, listed = schema.get("minProperties"), schema.get("required")
    sure = len(listed) if isinstance(listed, list) else 0
    if isinstance(least, int | float) and least > sure + 1:
        raise GrammarInvalid(
            f"minProperties {least} is above the {sure} names in 'required' and one more: an answer could repeat one "
            "name to have so many; put names into 'required'"
        )
    if isinstance(multiple, int | float) and abs(multiple) > MAX_MULTIPLE:
        raise GrammarInvalid(f"multipleOf {multiple} is above {MAX_MULTIPLE}, whose expression would be too large")
