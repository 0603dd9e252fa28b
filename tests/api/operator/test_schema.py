"""One judgement of a spec, whoever gives it: the API server by the schema, operator and `explain` by the models.

The sources of volumes and variables under podTemplate are left out: they are passed on as written.
"""

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pydantic import ValidationError

from graphpod_operator.api.spec import Spec
from tests import specs
from tests.api.operator.door import Door
from tests.places import Place
from tests.tries import tries

CASES = [(path, specs.with_value(path, value)) for path, node in specs.fields() for value in specs.values(path, node)]


def our_refusal(spec: Any) -> str | None:
    """What the models have against a spec."""
    try:
        Spec.model_validate(spec)
    except ValidationError as error:
        return str(error)
    return None


OURS = [(path, spec, our_refusal(spec)) for path, spec in CASES]
VALID = [spec for _, spec, refusal in OURS if refusal is None]
SEED = 20261126


def drawn(most: int | None) -> list[tuple[str, Any, str | None]]:
    """Of each field so many values that the models accept, and so many that they refuse; None: all."""
    draw, sides = Random(SEED), dict[tuple[str, bool], list[tuple[str, Any, str | None]]]()
    for path, spec, refusal in OURS:
        sides.setdefault((path, refusal is None), []).append((path, spec, refusal))
    return [case for side in sides.values() for case in draw.sample(side, min(most or len(side), len(side)))]


def test_there_are_values_inside_and_outside_of_every_field() -> None:
    accepted = {path for path, _, refusal in OURS if refusal is None}
    refused = {path for path, _, refusal in OURS if refusal is not None}
    assert accepted == refused == {path for path, _ in specs.fields()}
    assert len(CASES) > 2000


@pytest.mark.parametrize("most", [3, pytest.param(None, marks=pytest.mark.slow)], ids=["three of each side", "all"])
def test_the_server_accepts_a_value_exactly_when_the_models_do(door: Door, most: int | None) -> None:
    """`make samples` asks about all values."""
    asked = drawn(most)
    assert {path for path, _, _ in asked} == {path for path, _ in CASES}
    differing = [
        f"{path}: {spec} server: {theirs} models: {ours}"
        for path, spec, ours in asked
        if ((theirs := door.judge(spec).refusal) is None) != (ours is None)
    ]
    assert differing == []


@tries(250, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.sampled_from(VALID), min_size=2, max_size=8))
def test_the_server_accepts_a_whole_spec_exactly_when_the_models_do(door: Door, parts: list[Any]) -> None:
    """Each part is valid alone; rules about several fields may refuse them together."""
    spec: Any = {}
    for part in parts:
        spec = specs.merged(spec, part)
    theirs, ours = door.judge(spec).refusal, our_refusal(spec)
    assert (theirs is None) == (ours is None), f"server: {theirs}\nmodels: {ours}"


def test_the_models_read_a_stored_spec_as_they_read_the_written_one(door: Door) -> None:
    """The server's defaults are the models'."""
    differing = [
        spec for spec in VALID[::5] if Spec.model_validate(door.judge(spec).stored["spec"]) != Spec.model_validate(spec)
    ]
    assert differing == []


@pytest.mark.parametrize(
    ("before", "after", "refusal"),
    [
        ({"name": "a"}, {"name": "b"}, "spec.model.name cannot be changed"),
        ({"name": "a"}, {}, "spec.model.name cannot be changed"),
        ({}, {"name": "a"}, "spec.model.name cannot be changed"),
        ({"name": "a"}, {"name": "a", "uri": "pvc://other"}, None),
        (
            {"uri": "hf://o/n", "cache": {"size": "1Gi", "storageClassName": "a"}},
            {"uri": "hf://o/n", "cache": {"size": "1Gi", "storageClassName": "b"}},
            "spec.model.cache.storageClassName cannot be changed",
        ),
        (
            {"uri": "hf://o/n", "cache": {"size": "1Gi"}},
            {"uri": "hf://o/n", "cache": {"size": "1Gi", "storageClassName": "b"}},
            "spec.model.cache.storageClassName cannot be changed",
        ),
        ({"uri": "hf://o/n", "cache": {"size": "1Gi"}}, {"uri": "pvc://other"}, None),
    ],
)
def test_what_must_not_change_is_refused_when_set_changed_and_removed(
    place: Place, door: Door, before: dict[str, Any], after: dict[str, Any], refusal: str | None
) -> None:
    place.apply(model={"uri": "pvc://c", **before}, suspend=True)
    judgement = door.judge_change(place.namespace, {"model": {"uri": "pvc://c", **after}})
    assert (judgement.refusal is None) == (refusal is None)
    assert refusal is None or refusal in (judgement.refusal or "")
