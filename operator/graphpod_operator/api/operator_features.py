"""The features of the API that are the operator's to build: the twin of the policy's table of engine features."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from graphpod_operator.api.spec import Spec
from graphpod_policy import NotBuilt


class OperatorFeature(NamedTuple):
    """One row of the table."""

    name: str
    field: str
    """Path in the API, as the user wrote it."""
    built: bool
    asked: Callable[[Spec], object]
    """A true value when the feature is in use."""


OPERATOR_FEATURES: tuple[OperatorFeature, ...] = (
    OperatorFeature("credentials of a model source", "spec.model.secretRef", False, lambda spec: spec.model.secret_ref),
    OperatorFeature("a cache of downloads", "spec.model.cache", False, lambda spec: spec.model.cache),
)
"""Every feature that asks something of the operator alone and is not in every version."""


def lacking(spec: Spec) -> tuple[NotBuilt, ...]:
    """Every asked feature that this operator does not have."""
    return tuple(
        NotBuilt(row.field, f"{row.field}: {row.name} is not built in this version; remove the field")
        for row in OPERATOR_FEATURES
        if not row.built and row.asked(spec)
    )
