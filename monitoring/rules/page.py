"""The page of alerts: what each means, the commands to run, the next step."""

from collections.abc import Iterator

from graphpod_operator.docs.markdown import table
from monitoring.rules import GROUPS
from monitoring.rules.row import Alert, Group, Recording

HEAD = """# Alerts

<!-- Made by `python -m monitoring`. Do not edit. -->

Each alert of [the rules](../../charts/graphpod/files/rules.yaml): what it means, what to run, and the next step.
[Monitoring](../how-to/monitor.md#alerts) explains how to install them. NAMESPACE, NAME and POD stand for the labels
`namespace`, `inferenceservice` and `pod` of the alert. The operator is assumed in namespace `graphpod-system`.

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
    commands = "\n".join(row.commands)
    return (
        f"\n### {row.name}\n\n{row.means}\n\n```promql\n{row.expr}\n```\n\nRun:\n\n```\n{commands}\n```\n\n"
        f"Next step: {row.step}\n"
    )


def _lasts(row: Alert) -> str:
    return "at once" if row.lasts == "0s" else row.lasts
