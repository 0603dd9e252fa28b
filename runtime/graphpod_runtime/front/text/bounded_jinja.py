"""jinja2 with bounds: a chat template is a program that came with a model, and runs in the process that answers.

What a template does is counted, not timed: turns of loops and calls. So is what it writes. One expression can still
take the memory of what it computes; those whose result a small text makes huge are refused before.
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes
from jinja2.filters import do_format
from jinja2.runtime import Context
from jinja2.visitor import NodeTransformer

MOST_STEPS = 1 << 22
"""Turns of loops and calls of one rendering: seconds. A conversation has at most 65 536 texts, lists and objects."""
MOST_CHARACTERS = 1 << 26
"""Of a rendered text, or of one that an expression repeats or puts together."""
MOST_WIDTH = 1 << 16
"""Of a number that is given to a filter or method that fills up."""
MOST_BITS = 1 << 16
"""Of a power or product."""
FILLING = ("batch", "center", "indent", "slice", "wordwrap")
"""Filters whose result, or time, is as large as a number that they are given."""
WIDENING = ("center", "expandtabs", "ljust", "rjust", "zfill")
"""Methods of texts that do the same."""
FORMATTING = ("format", "format_map")
"""Methods of texts that fill up as the text says."""
PERCENT = re.compile(r"%%|%(?:\([^)]*\))?[-+ #0]*(?:\d*\.)?(\*|\d{6,})")
"""A field of `%` whose width or precision has six digits, or is computed: in the group."""
FIELD = re.compile(r"\{[^{}]*:[^{}]*(?:\{|\d{6,})")
"""The same of a text's `format`."""
WIDE_FIELD = "it formats by a width of six digits or more, or one that it computes"
TURN, JOINED = "% turn", "% joined"
"""Filters of ours: no template can spell these names."""


class TooMuch(jinja2.TemplateError):
    """The template does more than any that writes a conversation; the message says what."""


class BoundedEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox of templates that are rendered by `written`."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
        self.filters.update({name: _narrow(self.filters[name], name) for name in FILLING})
        self.filters |= {TURN: self._turn, JOINED: _joined, "format": _formatted}
        del self.globals["lipsum"]
        self._counted = threading.local()

    def bounded(self, tree: nodes.Template) -> jinja2.Template:
        """The template of a tree, which is changed."""
        return self.from_string(_Bounds().visit(tree).set_environment(self))

    def written(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        """What `template` writes. TooMuch where it breaks a bound; otherwise whatever the template raises."""
        self._counted.steps = 0
        return _joined(template.root_render_func(template.new_context(dict(variables))))

    @jinja2.pass_context  # or it is called once, when the template is compiled
    def _turn(self, _context: Context, _value: object) -> None:
        self._counted.steps += 1
        if self._counted.steps > MOST_STEPS:
            raise TooMuch(f"its loops and calls take more than {MOST_STEPS} steps")

    def call(self, context: Context, obj: Any, /, *given: Any, **named: Any) -> Any:
        self._turn(context, None)
        method = getattr(obj, "__wrapped__", obj)  # of `format` the sandbox makes its own
        if isinstance(text := getattr(method, "__self__", None), str):
            if method.__name__ in WIDENING:
                _refuse_wide(given, method.__name__)
            elif method.__name__ in FORMATTING and FIELD.search(text.replace("{{", "").replace("}}", "")):
                raise TooMuch(WIDE_FIELD)
        return super().call(context, obj, *given, **named)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        match operator:
            case "**":
                _refuse_power(left, right)
            case "*":
                _refuse_repeated(left, right)
                _refuse_repeated(right, left)
                _refuse_product(left, right)
            case "+" if isinstance(left, str) and isinstance(right, str):
                _refuse_long(len(left) + len(right))
                return left + right
            case "+" if isinstance(left, Sequence) and isinstance(right, Sequence):
                _refuse_parts(len(left) + len(right))
            case "%" if isinstance(left, str):
                _refuse_wide_fields(left)
        return super().call_binop(context, operator, left, right)


class _Bounds(NodeTransformer):
    """Counts each turn of a loop, and puts texts together in bounds."""

    def visit_For(self, loop: nodes.For) -> nodes.For:
        self.generic_visit(loop)
        loop.body.insert(0, nodes.ExprStmt(nodes.Filter(nodes.Const(None), TURN, [], [], None, None)))
        return loop

    def visit_Concat(self, both: nodes.Concat) -> nodes.Filter:
        self.generic_visit(both)
        return nodes.Filter(nodes.List(both.nodes), JOINED, [], [], None, None)


def _joined(pieces: Iterable[object]) -> str:
    texts, size = [], 0
    for text in map(str, pieces):
        texts.append(text)
        size += len(text)
        _refuse_long(size)
    return "".join(texts)


def _refuse_long(size: int) -> None:
    if size > MOST_CHARACTERS:
        raise TooMuch(f"it writes more than {MOST_CHARACTERS} characters")


def _refuse_repeated(part: Any, times: Any) -> None:
    if isinstance(part, Sequence) and isinstance(times, int):
        _refuse_parts(len(part) * times)


def _refuse_parts(count: int) -> None:
    if count > MOST_CHARACTERS:
        raise TooMuch(f"it repeats a text or list to more than {MOST_CHARACTERS} parts")


def _refuse_product(one: Any, other: Any) -> None:
    if isinstance(one, int) and isinstance(other, int) and one.bit_length() + other.bit_length() > MOST_BITS:
        raise TooMuch(f"it computes a product of more than {MOST_BITS} bits")


def _refuse_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MOST_BITS:
        raise TooMuch(f"it computes a power of more than {MOST_BITS} bits")


def _refuse_wide_fields(text: str) -> None:
    if any(field[1] for field in PERCENT.finditer(text)):
        raise TooMuch(WIDE_FIELD)


def _formatted(text: object, *given: Any, **named: Any) -> str:
    """jinja2's filter `format`."""
    _refuse_wide_fields(str(text))
    return do_format(str(text), *given, **named)


def _refuse_wide(given: Iterable[Any], name: str) -> None:
    if any(isinstance(one, int) and one > MOST_WIDTH for one in given):
        raise TooMuch(f"it gives {name} a number above {MOST_WIDTH}")


def _narrow(fill: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`fill` with numbers up to MOST_WIDTH."""

    @wraps(fill)  # jinja2's marks of what else it is given, too
    def filled(*given: Any, **named: Any) -> Any:
        _refuse_wide((*given, *named.values()), name)
        return fill(*given, **named)

    return filled
