"""Nothing is accepted and ignored: each field of the spec changes what is made, or is refused as not built."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from graphpod_operator.api.spec import Spec
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.plan.refused import Refused
from tests import specs
from tests.unit.operator.objects import outcome

FIELDS = [
    path for path, node in specs.fields() if "properties" not in node and "properties" not in node.get("items", {})
]
ELSEWHERE = {
    "spec.model.cache.claim",
    "spec.engine.hostCache.file.path",
    "spec.engine.hostCache.file.size",
    "spec.model.stream",
    "spec.graph.retries",
    "spec.updates",
    "spec.slo.itl",
    "spec.slo.ttft",
}
"""What decides whether a service is refused, what becomes of one that exists, where its weights go
(controller/test_downloads.py, render/test_streamed.py), fields that need others
(intent/test_host_cache_files.py), and what the operator exports of it
(telemetry/test_service_objectives.py): shown by tests of their own.
"""


def text_of(spec: dict[str, Any]) -> str:
    """What comes of a spec, as text that differs when anything made differs."""
    told = outcome(**spec)
    if isinstance(told, Refused):
        return f"{told.reason.name}: {told.what}"
    made = list(told.children)
    if told.weights is not None:
        made += [*filter(None, [told.weights.claim]), *(one.job for one in told.weights.downloads)]
    return json.dumps([child.body for child in made])


def is_valid(spec: Any) -> bool:
    try:
        Spec.model_validate(spec)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("path", sorted(set(FIELDS) - ELSEWHERE))
def test_a_field_changes_what_is_made_or_is_refused_by_name(path: str) -> None:
    node = dict(specs.fields())[path]
    outcomes = {text_of(spec) for value in specs.values(path, node) if is_valid(spec := specs.with_value(path, value))}
    parents = [path[:index] for index, letter in enumerate(path) if letter == "."] + [path]
    not_built = any(
        told.startswith(Reason.FeatureNotBuilt.name)
        and any(f"{parent.rstrip('[]')}: " in told for parent in parents[1:])
        for told in outcomes
    )
    assert not_built or len(outcomes) > 1
