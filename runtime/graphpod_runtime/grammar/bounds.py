"""What a client's grammar may cost: bounds on its text, and llguidance's own limits.

Measured with llguidance 1.9 on one core: within these bounds the slowest schema found compiled in 0.4 s (1000 optional
properties of one object, whose masks take 35 ms), the slowest regular expression in 0.1 s, and a step's mask took
30 ms at most. What llguidance itself gives up is an error of the one request.
"""

from typing import Any

import llguidance

MAX_CHARACTERS = 512 << 10
"""Of a grammar's text. A Kubernetes Deployment with all definitions written out has 450 000."""
MAX_DEPTH = 64
"""Levels of lists and objects of a schema."""
MAX_PROPERTIES = 1000
"""Of one object. The time to compile grows with their square."""
MAX_OPTIONS = 10_000
"""Entries of one enum or list of choices."""
MAX_MULTIPLE = 10_000
"""Of `multipleOf`: its expression has as many states."""
MAX_BLANKS = 256
"""Characters of the expression for blanks."""
EXTENSION = "x-guidance"
"""llguidance's own keyword. It switches checks off, so a client may not use it."""

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


def refuse_costly(schema: Any) -> None:
    """GrammarInvalid for a JSON schema, already parsed, that would take too long or too much memory."""
    level = [schema]
    for depth in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                _refuse_object(value)
                below += value.values()
            elif isinstance(value, list):
                below += value
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
    if isinstance(properties, dict) and len(properties) > MAX_PROPERTIES:
        raise GrammarInvalid(f"an object of the schema has {len(properties)} properties; at most {MAX_PROPERTIES} fit")
    if isinstance(options, list) and len(options) > MAX_OPTIONS:
        raise GrammarInvalid(f"an enum of the schema has {len(options)} values; at most {MAX_OPTIONS} fit")
    if isinstance(multiple, int | float) and abs(multiple) > MAX_MULTIPLE:
        raise GrammarInvalid(f"multipleOf {multiple} is above {MAX_MULTIPLE}, whose expression would be too large")
