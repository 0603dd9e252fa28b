"""The rules: one table of data that decides, for each phase, which graph policy runs. One file for each topic.

A row speaks about some phases and some policies. `Unsupported` and `Unproven` exclude candidates, `Adjust` changes
sizes or puts a duty on the engine, `Gate` sends one batch to the eager path. Reference page, `graphpod rules`,
`explain` and the labels of metrics come from this table.
"""

from collections.abc import Iterable

from graphpod_policy.engine_features import BUILT_POLICIES, is_built
from graphpod_policy.enums import FallbackReason, Phase, Policy, Severity
from graphpod_policy.rules import gates, ladders, memory, models, numerics, parallelism, policies, speculation
from graphpod_policy.rules.gates import padding_refused
from graphpod_policy.rules.rule import Batch, Case, Rule

TABLES: tuple[tuple[str, tuple[Rule, ...]], ...] = tuple(
    (table.TITLE, table.ROWS)
    for table in (policies, parallelism, memory, numerics, speculation, models, ladders, gates)
)
"""Titles and rows by topic, in the order in which rules are asked."""

RULES: tuple[Rule, ...] = tuple(rule for _, rows in TABLES for rule in rows)

BY_CANDIDATE: dict[tuple[Phase, Policy], tuple[Rule, ...]] = {
    (phase, policy): tuple(
        rule for rule in RULES if rule.when is not None and phase in rule.phases and policy in rule.policies
    )
    for phase in Phase
    for policy in Policy
}
"""Rows that may speak about a candidate, in the order of the table."""

BY_NAME: dict[str, Rule] = {rule.id: rule for rule in RULES if rule.when is None}
"""Rows that are applied by name."""

GATES: dict[str, Rule] = {rule.id: rule for rule in RULES if rule.severity is Severity.Gate}


def _possible(gate: Rule) -> bool:
    """Whether a batch of this version's engine can meet `gate`."""
    runs = any(policy in BUILT_POLICIES[phase] for phase in gate.phases for policy in gate.policies)
    return runs and is_built(gate.feature)


POSSIBLE_FALLBACKS: tuple[FallbackReason, ...] = tuple(
    reason for reason in FallbackReason if reason not in GATES or _possible(GATES[reason])
)
"""Reasons that a batch of this version's engine can have; the others belong to features that are not built."""


def is_about_built(rule: str) -> bool:
    """Whether the rule of this id is about something that this version's engine has, by one of its rows at least."""
    return any(is_built(row.feature) for row in RULES if row.id == rule)


def speaking(case: Case, *severities: Severity) -> list[Rule]:
    """The rows of these severities that concern a candidate, in the order of the table."""
    return [
        rule
        for rule in BY_CANDIDATE[case.phase, case.policy]
        if rule.severity in severities and rule.when is not None and rule.when(case)
    ]


def exclusions(case: Case) -> list[Rule]:
    """The rows that stand against a candidate."""
    return speaking(case, Severity.Unsupported, Severity.Unproven)


def refusing_gate(names: Iterable[str], batch: Batch) -> FallbackReason | None:
    """The first of the plan's gates that refuses `batch`; None when it may run on its graph."""
    for name in names:
        rule = GATES[name]
        assert rule.refuses is not None
        if batch.phase in rule.phases and batch.policy in rule.policies and rule.refuses(batch):
            return FallbackReason(name)
    return None


__all__ = [
    "BY_CANDIDATE",
    "BY_NAME",
    "GATES",
    "POSSIBLE_FALLBACKS",
    "RULES",
    "TABLES",
    "Batch",
    "Case",
    "Rule",
    "exclusions",
    "is_about_built",
    "padding_refused",
    "refusing_gate",
    "speaking",
]
