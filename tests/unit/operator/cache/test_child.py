"""What of a child decisions need."""

from typing import Any

import pytest

from graphpod_operator.cache.child import ReplicasClaim
from graphpod_operator.kube.field_ownership import FIELD_MANAGER

OURS = {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
THEIRS = {"manager": "hpa", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
ELSEWHERE = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:paused": {}}}}


@pytest.mark.parametrize(
    ("managers", "claim"),
    [
        ([OURS], (5, True, False)),
        ([THEIRS], (5, False, True)),
        ([OURS, THEIRS, ELSEWHERE], (5, True, True)),
        ([ELSEWHERE], (5, False, False)),
    ],
)
def test_replicas_are_claimed_by_those_who_set_them(managers: list[dict[str, Any]], claim: tuple[Any, ...]) -> None:
    assert ReplicasClaim.of({"metadata": {"managedFields": managers}, "spec": {"replicas": 5}}) == claim


@pytest.mark.parametrize("raw", [{}, {"spec": None}, {"spec": {}}])
def test_a_deployment_that_names_no_replicas_has_one(raw: dict[str, Any]) -> None:
    assert ReplicasClaim.of(raw) == (1, False, False)
