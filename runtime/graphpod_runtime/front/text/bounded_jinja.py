"""jinja2 with bounds: a chat template is a program that came with a model, and runs in the process that answers.

What a template does is counted, not timed: turns of loops and calls. So is what it makes: the texts and lists of every
expression, each before it is made, and what is written.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import wraps
from types import BuiltinFunctionType
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes
from jinja2.filters import make_attrgetter
from jinja2.nodes import EvalContext
from jinja2.runtime import Context
from jinja2.visitor import NodeTransformer

from graphpod_runtime.front.text import template_sizes
from graphpod_runtime.front.text.template_sizes import Measure, Unmeasurable, size

MOST_STEPS = 1 << 22
"""Turns of loops and calls of one rendering: seconds. A conversation has at most 65 536 texts, lists and objects."""
MOST_CHARACTERS = 1 << 28
"""Of all that one rendering makes: at most 1 GiB, if it keeps them all. A prompt of a million tokens has 5 million,
and templates make a text of them a few times."""
MOST_BITS = 1 << 16
"""Of a power or product."""
TURN, JOINED, SLICED = "% turn", "% joined", "% sliced"
"""Filters of ours: no template can spell these names."""


class TooMuch(jinja2.TemplateError):
    """The template does more than any that writes a conversation; the message says what."""


class _Counted(threading.local):
    """What the rendering of this thread has done."""

    steps = 0
    characters = 0


class BoundedEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox of templates that are rendered by `written`."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols], finalize=self._shown
        )
        self.filters |= {TURN: self._turn, JOINED: self._joined, SLICED: self._sliced}
        self.filters |= {"join": self._join, "sum": self._sum, "format": self._format}
        for name, measure in template_sizes.FILTERS.items():
            self.measure(name, measure)
        del self.globals["lipsum"]
        self.concat = self._joined  # type: ignore[method-assign]
        self._counted = _Counted()

    def measure(self, name: str, measure: Measure) -> None:
        """Count what the filter of that name makes, by its arguments."""
        made = self.filters[name]

        @wraps(made)  # jinja2's marks of what else it is given, too
        def measured(*given: Any, **named: Any) -> Any:
            self._spend(measure(*given[hasattr(made, "jinja_pass_arg") :], **named))
            return made(*given, **named)

        self.filters[name] = measured

    def bounded(self, tree: nodes.Template) -> jinja2.Template:
        """The template of a tree, which is changed."""
        return self.from_string(_Bounds().visit(tree).set_environment(self))

    def written(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        """What `template` writes. TooMuch or Unmeasurable where it breaks a bound; otherwise whatever the template
        raises.
        """
        self._counted.steps = self._counted.characters = 0
        return self._joined(template.root_render_func(template.new_context(dict(variables))))

    @property
    def characters(self) -> int:
        """Of all that this thread's rendering has made, at most."""
        return self._counted.characters

    def _spend(self, characters: int) -> None:
        self._counted.characters += characters
        if self._counted.characters > MOST_CHARACTERS:
            raise TooMuch(f"its texts and lists have more than {MOST_CHARACTERS} characters")

    @jinja2.pass_context  # or it is called once, when the template is compiled
    def _turn(self, _context: Context, _value: object) -> None:
        self._counted.steps += 1
        if self._counted.steps > MOST_STEPS:
            raise TooMuch(f"its loops and calls take more than {MOST_STEPS} steps")

    def call(self, context: Context, obj: Any, /, *given: Any, **named: Any) -> Any:
        self._turn(context, None)
        method = getattr(obj, "__wrapped__", obj)  # of `format` the sandbox makes its own
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            if method.__name__ == "join":
                given = tuple(map(list, given))
            measure = template_sizes.METHODS.get(method.__name__, template_sizes.unchanged)
            self._spend(measure(owner, *given, **named))
        elif isinstance(owner, int | bytes):
            raise Unmeasurable(f"it calls {method.__name__} of a number or of bytes")
        elif isinstance(method, BuiltinFunctionType | type):
            self._spend(sum(map(template_sizes.places, (owner, *given))))
        return super().call(context, obj, *given, **named)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        match operator:
            case "**":
                _refuse_power(left, right)
            case "*":
                self._spend(_repeated(left, right) + _repeated(right, left))
                _refuse_product(left, right)
            case "+" if isinstance(left, str) and isinstance(right, str):
                self._spend(len(left) + len(right))
            case "+" if isinstance(left, Sequence) and isinstance(right, Sequence):
                self._spend(template_sizes.places(left) + template_sizes.places(right))
            case "%" if isinstance(left, str):
                self._spend(template_sizes.by_percent(left, right))
        return super().call_binop(context, operator, left, right)

    def _shown(self, value: Any) -> Any:
        """A value that is about to be written."""
        if not isinstance(value, str):
            self._spend(size(value))
        return value

    def _sliced(self, part: Any) -> Any:
        """A part of a text or list, which is a copy."""
        self._spend(len(part) if isinstance(part, str) else template_sizes.places(part))
        return part

    def _joined(self, pieces: Iterable[object]) -> str:
        return "".join(self._texts(pieces))

    def _texts(self, values: Iterable[object]) -> Iterator[str]:
        for value in values:
            self._spend(size(value))
            yield str(value)

    @jinja2.pass_eval_context
    def _join(self, found: EvalContext, value: Any, d: object = "", attribute: str | int | None = None) -> str:
        """jinja2's filter `join`."""
        if attribute is not None:
            value = map(make_attrgetter(found.environment, attribute), value)
        texts = list(self._texts(value))
        self._spend(len(texts) * size(d))
        return str(d).join(texts)

    @jinja2.pass_environment
    def _sum(self, environment: jinja2.Environment, value: Any, attribute: Any = None, start: Any = 0) -> Any:
        """jinja2's filter `sum`."""
        parts = list(value if attribute is None else map(make_attrgetter(environment, attribute), value))
        self._spend(template_sizes.sums(parts, start))
        return sum(parts, start)

    def _format(self, value: object, *given: Any, **named: Any) -> str:
        """jinja2's filter `format`."""
        if given and named:
            raise jinja2.TemplateError("format is given both places and names")
        self._spend(template_sizes.by_percent(text := str(value), values := named or given))
        return text % values


class _Bounds(NodeTransformer):
    """Counts each turn of a loop and each slice, and puts texts together in bounds."""

    def visit_For(self, loop: nodes.For) -> nodes.For:
        self.generic_visit(loop)
        loop.body.insert(0, nodes.ExprStmt(nodes.Filter(nodes.Const(None), TURN, [], [], None, None)))
        return loop

    def visit_Concat(self, both: nodes.Concat) -> nodes.Filter:
        self.generic_visit(both)
        return nodes.Filter(nodes.List(both.nodes), JOINED, [], [], None, None)

    def visit_Getitem(self, part: nodes.Getitem) -> nodes.Expr:
        self.generic_visit(part)
        return nodes.Filter(part, SLICED, [], [], None, None) if isinstance(part.arg, nodes.Slice) else part


def _repeated(part: Any, times: Any) -> int:
    if not isinstance(part, Sequence) or not isinstance(times, int):
        return 0
    return max(times, 0) * (len(part) if isinstance(part, str) else template_sizes.places(part))


def _refuse_product(one: Any, other: Any) -> None:
    if isinstance(one, int) and isinstance(other, int) and one.bit_length() + other.bit_length() > MOST_BITS:
        raise TooMuch(f"it computes a product of more than {MOST_BITS} bits")


def _refuse_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MOST_BITS:
        raise TooMuch(f"it computes a power of more than {MOST_BITS} bits")
