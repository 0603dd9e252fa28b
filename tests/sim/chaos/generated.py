"""Specs made at random from the schema, and what the operator would make of each."""

import random
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from graphpod_operator.api.spec import Spec
from graphpod_operator.cache.service import Service
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from tests import specs
from tests.api.operator.process import INSTALLED
from tests.places import URI
from tests.sim.conftest import annotations

Made = dict[str, Any]

LEFT_OUT = {
    "spec.model": "its identity may not change, and the place has one claim",
    "spec.autoscaling": "the number of pods then depends on what was before, as it must",
    "spec.engine.image": "an image that cannot be pulled is a fault of its own",
}
"""Fields that are not drawn, and why."""
MAY_STOP_PODS = ("spec.placement", "spec.resources", "spec.podTemplate", "spec.engine.imagePullPolicy")
"""Fields by which a spec may ask for what no node has, or for pods that the API server refuses."""
MOST_REPLICAS = 3


def parts(without: Iterable[str] = ()) -> list[tuple[str, Made]]:
    """Every field with every value that the models accept alone, but for LEFT_OUT and these."""
    return [
        (path, made)
        for path, node in specs.fields()
        if not any(path == left or path.startswith((f"{left}.", f"{left}[")) for left in (*LEFT_OUT, *without))
        for value in specs.values(path, node)
        if not _has_null(value) and _valid(made := specs.with_value(path, value)) and not _stubs(made)
    ]


def drawn(seed: int, without: Iterable[str] = ()) -> Iterator[Made]:
    """Whole specs without end, each of one to six parts that go together."""
    chance, choice = random.Random(seed), parts(without)
    by_field: dict[str, list[Made]] = {}
    for path, made in choice:
        by_field.setdefault(path, []).append(made)
    while True:
        fields = chance.sample(sorted(by_field), chance.randint(1, 6))
        spec: Made = {}
        for field in fields:
            spec = specs.merged(spec, chance.choice(by_field[field]))
        base = {"model": {"uri": URI, "name": "m"}, "podTemplate": annotations(seconds="0.5")}
        spec = specs.merged(spec, base)
        spec["replicas"] = min(spec.get("replicas", chance.randint(0, MOST_REPLICAS)), MOST_REPLICAS)
        if _valid(spec):
            yield spec


def accepted(spec: Made) -> bool:
    """Whether the operator makes objects from it; else it says why not and touches nothing."""
    metadata = {"name": "demo", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1}
    service = Service.of({"metadata": metadata, "spec": spec})
    return isinstance(desire(PlanInput(service, INSTALLED)), Desired)


def _valid(spec: Made) -> bool:
    try:
        Spec.model_validate(spec)
    except ValidationError:
        return False
    return True


def _has_null(value: Any) -> bool:
    """Whether there is a null in it, which kubectl refuses before anybody is asked."""
    if isinstance(value, dict | list):
        return any(map(_has_null, value.values() if isinstance(value, dict) else value))
    return value is None


def _stubs(made: Made) -> bool:
    """Whether it speaks to the stub engines, which do what the history says and nothing else."""
    return "stub.graphpod.dev/" in str(made.get("podTemplate", ""))
