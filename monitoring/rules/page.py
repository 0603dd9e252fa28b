"""The page of alerts: what each means, the commands to run, the next step."""

import re
from collections.abc import Iterator

from graphpod_operator.docs.markdown import table
from monitoring.rules import GROUPS
from monitoring.rules.row import Alert, Group, Recording

HEAD = """# Alerts

<!-- Made by `python -m monitoring`. Do not edit. -->

Each alert of [the rules](../../charts/graphpod/files/rules.yaml): what it means, what to run, and the next step.
[Monitoring](../how-to/monitor.md#alerts) explains how to install them.

Each block of commands starts with a line of variables. Replace the words in angle brackets by the alert's labels, then
copy the block. The commands need `kubectl`, `curl` and a shell. They work with any Helm release and namespace: alerts
about the operator carry its namespace and pod as labels.

"""


def render() -> str:
    """The page."""
    alerts = [(group, row) for group in GROUPS for row in group.rows if isinstance(row, Alert)]
    rows = [(f"[{row.name}](#{row.anchor})", row.severity.value, _lasts(row), group.title) for group, row in alerts]
    return HEAD + table(("Alert", "Severity", "Fires after", "About"), rows) + "".join(_body())


def _body() -> Iterator[str]:
    for group in GROUPS:
        yield f"\n## {group.title}\n"
        yield from _recordings(group)
        yield from (_alert(row) for row in group.rows if isinstance(row, Alert))


def _recordings(group: Group) -> Iterator[str]:
    rows = [(f"`{row.name}`", row.means) for row in group.rows if isinstance(row, Recording)]
    if rows:
        yield "\n" + table(("Recorded series", "Meaning"), rows)


def _alert(row: Alert) -> str:
    filled = " ".join(f"{word}='<{label}>'" for word, label in row.variables.items())
    commands = "\n".join(filter(None, (filled, *row.commands)))
    return (
        f"\n### {row.name}\n\n{row.means}\n\n```promql\n{row.expr}\n```\n\nRun:\n\n```\n{commands}\n```\n\n"
        f"Next step: {_linked(row.step)}\n"
    )


def _linked(text: str) -> str:
    """Pages and alerts that the text names, as links."""
    text = re.sub(r"\bdocs/([\w/-]+\.md)", r"[\g<0>](../\1)", text)
    return re.sub(r"\bGraphpod[A-Z]\w+", lambda found: f"[{found[0]}](#{found[0].lower()})", text)


def _lasts(row: Alert) -> str:
    return "at once" if row.lasts == "0s" else row.lasts
