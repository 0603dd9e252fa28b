"""Values that others wrote, as messages show them: bounded, and marked where they are cut."""

LONGEST = 80
"""Characters of a value in a message."""


def shown(value: object) -> str:
    """The value as Python writes it."""
    return cut(repr(value))


def cut(text: str) -> str:
    """The text, or its beginning."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
