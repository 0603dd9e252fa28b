"""How much what an expression of a chat template makes can be, in characters and at most, before it is made.

Values of a template share parts: a list that holds one list twice, and so on thirty times, is small, and its text is
not. So each part is measured once.
"""

import re
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, Sized, ValuesView
from itertools import chain
from typing import Any

import jinja2
from jinja2.utils import Namespace

PART = 8
"""Characters that one place in a list takes."""
PIECE = 64
"""Characters that a text of its own takes."""
ESCAPED = 10
"""Characters of one in a text that stands in a list, or is written by `%r`."""
JSON_ESCAPED = 6
LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
PERCENT_FIELD = re.compile(r"%(?:\([^)]*\))?([^a-zA-Z%]*)([a-zA-Z%]?)")
BRACE_FIELD = re.compile(r"\{([^{}!:]*)(?:!([a-z]))?(?::([^{}]*)(\{)?)?")
"""A field of `format`: its name, conversion and form, and whether the form has a field."""
NUMBER = re.compile(r"\d{1,9}")


class Unmeasurable(jinja2.TemplateError):
    """How much an expression makes is known only once it is made; the message says why."""


def size(value: object) -> int:
    """Of the value as text."""
    return len(value) if isinstance(value, str) else _within(value, {})


def _within(value: object, known: dict[int, int]) -> int:
    """Of a value in a list or object; `known`: of those that were measured, by `id`."""
    if isinstance(value, str | bytes):
        return PIECE + ESCAPED * len(value)
    if isinstance(value, dict):
        parts: Iterable[object] = chain(value, value.values())
    elif isinstance(value, list | tuple | KeysView | ValuesView | ItemsView):
        parts = value
    elif isinstance(value, Namespace):
        raise Unmeasurable("it writes a namespace as a text")
    else:
        return PIECE + (value.bit_length() // 3 if isinstance(value, int) else 0)
    if (whole := known.get(id(value))) is None:
        whole = PART
        for part in parts:  # most are texts, and a call for each would take most of the time
            whole += PART + (PIECE + ESCAPED * len(part) if type(part) is str else _within(part, known))
        known[id(value)] = whole
    return whole


def places(value: object, *_given: object, **_named: object) -> int:
    """Of a copy of a list, or of the list of a text's characters."""
    return PART * len(value) if isinstance(value, Sized) else PART


def _number(value: object) -> int:
    """Of what is filled up by a number, or by a text."""
    return value if isinstance(value, int) else size(value)


def unchanged(value: object, *_given: object, **_named: object) -> int:
    """Of a text that is no longer than the value."""
    return size(value)


def _times(factor: int) -> Callable[..., int]:
    return lambda value, *_given, **_named: factor * size(value)


def _filled(value: object, *given: object, **named: object) -> int:
    return size(value) + sum(map(_number, (*given, *named.values())))


def _grouped(value: object, *given: object, **named: object) -> int:
    return places(value) + PIECE * sum(map(_number, (*given, *named.values())))


def _indented(value: object, width: object = 4, *_given: object, **_named: object) -> int:
    lines = _lines(value) if isinstance(value, str) else size(value)
    return size(value) + (lines + 1) * _number(width)


def _lines(text: str) -> int:
    return sum(map(text.count, LINE_ENDS))


def _wrapped(value: object, *given: object, **named: object) -> int:
    texts = [one for one in (*given, *named.values()) if isinstance(one, str)]
    return size(value) * (2 + sum(map(len, texts)))


def _linked(value: object, *given: object, **named: object) -> int:
    """By `urlize`: each word can be a link."""
    return size(value) * (16 + sum(map(size, (*given, *named.values()))))


def _replaced(text: Any, old: Any = "", new: Any = "", *_count: object, **_named: object) -> int:
    if isinstance(text, str) and isinstance(old, str):
        return len(text) + text.count(old) * size(new)
    return (size(text) + 1) * (size(new) + 1)


def _split(text: Any, by: Any = None, *_given: object, **_named: object) -> int:
    pieces = (len(text) + 1) // 2 if by is None else text.count(by)
    return len(text) + PIECE * (pieces + 1)


def _translated(text: Any, table: Any = None, *_given: object) -> int:
    longest = max(map(size, table.values()), default=1) if isinstance(table, Mapping) else 1
    return len(text) * max(1, longest)


def _joined(between: Any, parts: Any = (), *_given: object) -> int:
    return sum(size(part) + len(between) for part in parts)


def by_percent(text: str, values: object) -> int:
    """Of `text % values`, or of jinja2's filter `format`."""
    given: Iterable[object] = values if isinstance(values, tuple) else [values]
    if isinstance(values, Mapping):
        given = values.values()
    fields = PERCENT_FIELD.findall(text)
    if any("*" in form for form, _ in fields):
        raise Unmeasurable("it formats by a width that it computes")
    escaped = any(kind in "ra" for _, kind in fields)
    return len(text) + _fields([form for form, _ in fields], given, escaped)


def by_braces(text: str, *given: object, **named: object) -> int:
    """Of a text's `format` and `format_map`."""
    fields = BRACE_FIELD.findall(text.replace("{{", "").replace("}}", ""))
    if any(nested for *_, nested in fields):
        raise Unmeasurable("it formats by a width that it computes")
    values = chain.from_iterable(
        one.values() if isinstance(one, Mapping) else [one] for one in (*given, *named.values())
    )
    return len(text) + _fields([form for _, _, form, _ in fields], values, any(kind for _, kind, *_ in fields))


def _fields(forms: list[str], values: Iterable[object], escaped: bool) -> int:
    """Of fields whose widths and precisions stand in `forms`, each with the longest of the values."""
    widths = sum(int(number) for form in forms for number in NUMBER.findall(form))
    return widths + len(forms) * max(map(size, values), default=0) * (ESCAPED if escaped else 1)


def as_json(value: object, indent: object = None) -> int:
    """Of the filter `tojson`: each value of an object can stand on a line, and each level is indented."""
    written = size(value) * (JSON_ESCAPED if isinstance(value, str) else 1)
    return written if indent is None else written + written // PIECE * _number(indent) * _levels(value, {})


def _levels(value: object, known: dict[int, int]) -> int:
    if not isinstance(value, dict | list | tuple):
        return 1
    if id(value) not in known:
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + max((_levels(part, known) for part in parts), default=0)
    return known[id(value)]


def sums(parts: list[Any], start: object = 0) -> int:
    """Of the filter `sum`, which copies what it has for each part."""
    return 0 if isinstance(start, int | float) else len(parts) * (places(start) + sum(map(places, parts)))


Measure = Callable[..., int]
"""Of a filter's or method's arguments, the value first."""

FILTERS: Mapping[str, Measure] = {
    "string": size,
    **dict.fromkeys(("trim", "striptags", "truncate", "safe"), unchanged),
    **dict.fromkeys(("lower", "upper", "capitalize", "title"), _times(3)),
    **dict.fromkeys(("e", "escape", "forceescape", "xmlattr"), _times(5)),
    "urlencode": _times(12),
    "pprint": _times(16),
    "wordcount": _times(PIECE // 2),
    **dict.fromkeys(("list", "reverse", "sort", "unique", "dictsort", "groupby"), places),
    **dict.fromkeys(("batch", "slice"), _grouped),
    "center": _filled,
    "indent": _indented,
    "wordwrap": _wrapped,
    "urlize": _linked,
    "replace": _replaced,
}
"""Of filters of jinja2. Those that are left out make no texts, or one part at a time."""

METHODS: Mapping[str, Measure] = {
    **dict.fromkeys(("lower", "upper", "capitalize", "title", "casefold", "swapcase"), _times(3)),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _filled),
    "expandtabs": lambda text, *given, **named: (
        _filled(text) + text.count("\t") * _filled("", *(given or (8,)), **named)
    ),
    "encode": lambda text, *_given, **_named: 4 * len(text),
    "replace": _replaced,
    "join": _joined,
    **dict.fromkeys(("split", "rsplit"), _split),
    "splitlines": lambda text, *_given, **_named: len(text) + PIECE * (_lines(text) + 1),
    "translate": _translated,
    **dict.fromkeys(("format", "format_map"), by_braces),
}
"""Of methods of texts. The others make a text that is no longer."""
