"""The rules as Prometheus reads them, and as a PrometheusRule holds them: YAML with `groups`."""

from typing import Any

import yaml

from monitoring.rules import GROUPS
from monitoring.rules.row import Alert, Recording

PAGE = "docs/reference/alerts.md"
"""The page of alerts, as `runbook_url` names it. The chart's value monitoring.rules.page replaces it by a URL."""

NOTE = "# Made by `python -m monitoring`. Do not edit.\n"


def render() -> str:
    """The file."""
    return NOTE + yaml.dump({"groups": groups()}, Dumper=_Dumper, sort_keys=False, width=100_000, allow_unicode=True)


def groups() -> list[dict[str, Any]]:
    """Every group, as plain data."""
    return [{"name": group.name, "rules": [_rule(row) for row in group.rows]} for group in GROUPS]


def _rule(row: Recording | Alert) -> dict[str, Any]:
    if isinstance(row, Recording):
        return {"record": row.name, "expr": row.expr}
    return {
        "alert": row.name,
        "expr": row.expr,
        "for": row.lasts,
        "labels": {"severity": row.severity.value},
        "annotations": {
            "summary": row.summary,
            "description": f"{row.means} {row.step}",
            "runbook_url": f"{PAGE}#{row.anchor}",
        },
    }


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
