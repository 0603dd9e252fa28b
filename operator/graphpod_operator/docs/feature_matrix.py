"""The page of feature pairs: what Auto gets in each phase, and by which rule. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from graphpod_operator.docs import sglang_matrix
from graphpod_operator.docs.feature_pairs import CROSSED, GROUPS, Cell, Crossed, Pair, together
from graphpod_operator.docs.markdown import table
from graphpod_policy import Policy

LETTERS: dict[Policy, str] = {Policy.Breakable: "B", Policy.Piecewise: "P", Policy.Full: "F", Policy.Disabled: "·"}

INTRODUCTION = """\
What the rules say of every feature, and of every two features together, when both phases are Auto on a GPU. Whether a
feature is built is another question: see [rules](rules.md).

- The overview has two letters for a pair: prefill, then decode. **B** Breakable, **P** Piecewise, **F** Full, **·** no
  graphs, blank: no service can have both.
- The tables below it name the rules: those that excluded a policy first, then those that adjusted something.
  "Piecewise by name" is what stands against `graph.prefill: Piecewise`; "allowed" is allowed by the rules.
"""

UPSTREAM = """
## Compared with SGLang

On: a graph runs; off: eager; partly: under a condition (here: not proved, so that Auto avoids it and a request by name
runs). SGLang is its main branch of 2026-08-20. Each difference has its reason.

"""


def body() -> Iterator[str]:
    """The page without its title."""
    yield INTRODUCTION
    yield "\n## Overview\n\n"
    yield _overview()
    for title, rows in GROUPS:
        yield f"\n## {title}\n"
        for one in rows:
            yield f"\n### {one.name}: {one.means}\n\n"
            yield _pairs(one)
    yield UPSTREAM
    yield _upstream()


def _overview() -> str:
    numbered = {row.name: str(index) for index, row in enumerate(CROSSED, 1)}
    head = ("", *numbered.values())
    rows = (
        (f"{numbered[one.name]} {one.name}", *(_letters(together(one, other)) for other in CROSSED)) for one in CROSSED
    )
    return table(head, rows)


def _letters(pair: Pair | None) -> str:
    return f"{LETTERS[pair.prefill.policy]} {LETTERS[pair.decode.policy]}" if pair else ""


def _pairs(one: Crossed) -> str:
    """The feature alone, then with each that stands after it in the list: every pair is listed once."""
    others = CROSSED[CROSSED.index(one) :]
    found = [pair for other in others if (pair := together(one, other)) is not None]
    return table(
        ("with", "prefill", "Piecewise by name", "decode"),
        (
            (
                "alone" if pair.other is one else pair.other.name,
                _cell(pair.prefill),
                ", ".join(pair.prefill.piecewise) or "allowed",
                _cell(pair.decode),
            )
            for pair in found
        ),
    )


def _cell(cell: Cell) -> str:
    return f"**{cell.policy}** {', '.join(cell.rules) or '(no rule speaks)'}"


def _upstream() -> str:
    rows = []
    for row in sglang_matrix.ROWS:
        theirs = (row.piecewise, row.breakable, row.decode)
        both = (
            f"{one} / {other}" if one != other else one
            for one, other in zip(theirs, sglang_matrix.ours(row), strict=True)
        )
        rows.append((row.feature, *both, row.upstream, row.differs))
    head = ("Feature", "Piecewise (SGLang / here)", "Breakable", "Decode Full", "SGLang", "Why different")
    return table(head, rows)
