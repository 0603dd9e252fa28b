"""The operator needs exactly the rights it has: nothing is denied to it, and no right is never used."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import yaml

from tests.api.operator.downloads import DONE, MODEL, end, jobs
from tests.api.operator.process import LEASE_RULES, OPTIONAL_RULES, RULES, USER, Operator
from tests.audit import Audit
from tests.eventually import Eventually
from tests.places import Place

Right = tuple[str, str, str]
"""Verb, group, resource."""


def granted() -> set[Right]:
    """By every rule."""
    return {right for file in (RULES, LEASE_RULES) for rule in yaml.safe_load(file.read_text()) for right in _of(rule)}


def lent() -> set[Right]:
    """With kinds of others, which the cluster serves at times: in their own tests."""
    return {
        right for rules in yaml.safe_load(OPTIONAL_RULES.read_text()).values() for rule in rules for right in _of(rule)
    }


def _of(rule: dict[str, list[str]]) -> Iterator[Right]:
    return product(rule["verbs"], rule["apiGroups"], rule["resources"])  # type: ignore[return-value]


def under_policies(operator: Operator, place: Place, folder: Path, eventually: Eventually) -> None:
    """For a while the operator makes NetworkPolicies; the one that makes none takes them away."""
    access = '{"admin": [{"podSelector": {}}]}'
    strict = replace(operator, log=folder / "log", process=None, arguments=(f"--network-policy={access}",))
    eventually.logs.append(strict.log)
    assert operator.stop() == 0
    try:
        strict.start()
        eventually(lambda: place.names("networkpolicies"), timeout=60)
        assert strict.stop() == 0
    finally:
        operator.start()
        eventually(operator.idle, timeout=60)
    eventually(lambda: not place.names("networkpolicies"))


def test_the_operator_uses_what_it_was_granted_and_nothing_else(
    applied: Place, operator: Operator, audit: Audit, tmp_path: Path, eventually: Eventually
) -> None:
    applied.apply(replicas=2)  # with a budget, which goes
    eventually(lambda: applied.names("poddisruptionbudgets"))
    eventually(applied.reached("WorkloadAvailable", "False", "Starting"))
    applied.drop("service", "demo")  # a child that is made anew once its service was seen to be there
    eventually(lambda: applied.names("services"))
    applied.apply(autoscaling={"max": 3, "target": 4})  # with an autoscaler, which goes
    eventually(lambda: applied.names("horizontalpodautoscalers"))
    applied.apply(suspend=True)  # a transition that is told by an event
    eventually(applied.reached("Ready", "False", "Suspended"))
    for size in range(1, 5):  # more configurations than are kept
        applied.apply(suspend=True, engine={"maxBatch": size})
        eventually(applied.reached("Ready", "False", "Suspended"))

    applied.apply("fetched", model=MODEL)  # with a claim and a Job, which goes when it is done
    end(applied, eventually, 0, DONE)
    eventually(lambda: not jobs(applied))

    def used() -> set[Right]:
        """Anywhere: the operator of the whole cluster lists without a namespace and writes in one."""
        return {(right.verb, right.group, right.resource) for right in audit.since().by(USER).rights()}

    # an apply that creates is one request, a patch; the right to create is checked with it
    implied = {("create", group, resource) for verb, group, resource in granted() if verb == "patch"}

    def nothing_is_left_unused() -> bool:
        unused = granted() - implied - used()
        assert not unused, f"granted and not used: {sorted(unused)}"
        return True

    under_policies(operator, applied, tmp_path, eventually)
    eventually(nothing_is_left_unused)
    assert used() <= granted() | lent()


def test_nothing_is_denied_to_the_operator(applied: Place, operator: Operator, audit: Audit) -> None:
    assert audit.since().by(USER).forbidden() == ()
