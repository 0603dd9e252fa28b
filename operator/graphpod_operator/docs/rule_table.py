"""The table of rules as text, JSON and Markdown. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import groupby
from typing import Any

from graphpod_operator.docs.markdown import table
from graphpod_policy import FEATURES, RESOLVER_REVISION, Rule, Severity, Stage
from graphpod_policy.rules import TABLES, is_about_built

WIDTH = 110

MEANING: dict[Severity, str] = {
    Severity.Unsupported: "cannot work; a request for it degrades or fails, as graph.onUnsupported says",
    Severity.Unproven: "Auto avoids it; requested explicitly it runs and the decision says Forced, or the service is "
    "refused with FeatureNotBuilt where this version does not have it",
    Severity.Adjust: "changes sizes, compiling or what the engine has to do",
    Severity.Gate: "asked of every batch at run time; a refused batch runs eagerly and is counted under the rule's id",
}


class UnknownRule(ValueError):
    """There is no rule of this name; the message names the nearest ones."""


def as_text(only: str | None = None) -> str:
    """The table for a terminal, or one rule of it. Raises UnknownRule."""
    tables = _tables(only)
    lines = [f"Rules {RESOLVER_REVISION}", ""]
    spoken = {rule.severity for _, rules in tables for rule in rules}
    lines += [f"  {severity:<12} {meaning}" for severity, meaning in MEANING.items() if severity in spoken]
    for title, rules in tables:
        lines += ["", title.upper()]
        for name, rows in groupby(rules, key=lambda rule: rule.id):
            lines += ["", f"  {name}{_unbuilt(name)}"]
            for rule in rows:
                lines.append(f"    {rule.severity} for {_scope(rule)}")
                for each in (f"because {rule.because}", f"→ {rule.hint}", f"[{rule.source}]"):
                    lines += textwrap.wrap(each, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 8)
    return "\n".join(lines) + "\n"


def as_json(only: str | None = None) -> str:
    """The table for programs, or one rule of it. Raises UnknownRule."""
    rows = [_plain(title, rule) for title, rules in _tables(only) for rule in rules]
    return json.dumps({"resolverRevision": RESOLVER_REVISION, "rules": rows}, indent=2, ensure_ascii=False) + "\n"


def _tables(only: str | None) -> tuple[tuple[str, tuple[Rule, ...]], ...]:
    """Titles and rows of every topic; of the rule `only`, whatever its capitals, those that have it."""
    if only is None:
        return TABLES
    names = {rule.id.lower(): rule.id for _, rules in TABLES for rule in rules}
    if (name := names.get(only.lower())) is None:
        near = [names[one] for one in get_close_matches(only.lower(), names, 3, 0.5)]
        near += [name for low, name in names.items() if only.lower() in low and name not in near]
        hint = f"the nearest are {', '.join(near[:5])}" if near else "`graphpod rules` lists them"
        raise UnknownRule(f"no rule {only}: {hint}")
    found = ((title, tuple(rule for rule in rules if rule.id == name)) for title, rules in TABLES)
    return tuple((title, rows) for title, rows in found if rows)


def as_markdown() -> Iterable[str]:
    """The body of the reference page: a table for each topic, then the features."""
    yield from (f"- **{severity}**: {meaning}\n" for severity, meaning in MEANING.items())
    for title, rules in TABLES:
        yield f"\n## {title}\n\n"
        head = ("Rule", "Severity", "Speaks about", "Because", "What to do", "Changes", "Source")
        yield table(head, (_cells(rule) for rule in rules))
    yield "\n## Features\n\nRules marked † are about what is not built yet: explained, and refused when asked for.\n\n"
    yield table(
        ("Feature", "Field", "Built"),
        ((feature.name, f"`{feature.field}`", "yes" if feature.built else "no") for feature in FEATURES),
    )


def _cells(rule: Rule) -> tuple[str, ...]:
    mark = "" if is_about_built(rule.id) else " †"
    return (f"{rule.id}{mark}", rule.severity.value, _scope(rule), rule.because, rule.hint, changes(rule), rule.source)


def changes(rule: Rule) -> str:
    """What an Adjust row changes, in the words of the plan."""
    parts = [
        rule.duty.value if rule.duty else "",
        f"compile at most {rule.compile.value}" if rule.compile else "",
        "sizes" if rule.multiple or _resizes(rule) else "",
        f"backend {rule.backend.value}, short ladders" if rule.backend else "",
    ]
    return ", ".join(part for part in parts if part)


def _resizes(rule: Rule) -> bool:
    """An Adjust row that is applied by name is about sizes, unless it says what else it changes."""
    return rule.severity is Severity.Adjust and rule.when is None and rule.compile is None


def _plain(title: str, rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "topic": title,
        "severity": rule.severity.value,
        "phases": [phase.value for phase in rule.phases],
        "policies": [policy.value for policy in rule.policies],
        "stage": Stage.Runtime.value if rule.severity is Severity.Gate else rule.stage.value,
        "because": rule.because,
        "hint": rule.hint,
        "changes": changes(rule),
        "source": rule.source,
        "built": is_about_built(rule.id),
    }


def _scope(rule: Rule) -> str:
    phases = " and ".join(phase.value for phase in rule.phases)
    return f"{phases} {', '.join(policy.value for policy in rule.policies)}"


def _unbuilt(name: str) -> str:
    return "" if is_about_built(name) else "  (its feature is not built yet)"
