"""The rows of the table of rules."""

import re
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How soon a person has to act."""

    Critical = "critical"
    """Now: users get no service, or the objective is gone in hours."""
    Warning = "warning"
    """Today."""
    Info = "info"
    """When there is time."""


VARIABLES = {
    "namespace": "NAMESPACE",
    "inferenceservice": "NAME",
    "pod": "POD",
    "kind": "KIND",
    "name": "NAME",
}
"""Shell variable of the commands by the alert's label that it stands for."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A ratio that is computed at every evaluation. `name` has Prometheus' form level:metric:operation."""

    name: str
    expr: str
    labels: tuple[str, ...]
    """Of the recorded series."""
    means: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert, and its part of the page of alerts.

    `summary` may use `$labels` of `labels`, and `$value`. `means` and `step` are whole sentences, the same for every
    series: the alert's description, and text of the page. `commands` are shell lines with VARIABLES of `labels`.
    """

    name: str
    severity: Severity
    lasts: str
    """How long `expr` holds before the alert fires: 0s, 10m, 1h."""
    expr: str
    labels: tuple[str, ...]
    """Of each alert, besides its name and severity."""
    summary: str
    means: str
    commands: tuple[str, ...]
    step: str

    @property
    def variables(self) -> dict[str, str]:
        """Labels that its commands use, by their shell variable."""
        used = set(re.findall(r"\$([A-Z]+)", "\n".join(self.commands)))
        return {word: label for label, word in VARIABLES.items() if label in self.labels and word in used}

    @property
    def anchor(self) -> str:
        """Of its heading on the page."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that Prometheus evaluates one after the other: a recording stands before what reads it."""

    name: str
    title: str
    """On the page."""
    rows: tuple[Recording | Alert, ...]


SERVICE = ("namespace", "inferenceservice")
"""Labels of one service; `inferenceservice` comes from its PodMonitor."""
PHASE = (*SERVICE, "phase")
POD = (*SERVICE, "pod")


def by(labels: tuple[str, ...], operation: str = "sum") -> str:
    """`sum by (namespace, inferenceservice)`."""
    return f"{operation} by ({', '.join(labels)})"
