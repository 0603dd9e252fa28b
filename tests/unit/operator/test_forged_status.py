"""A status that somebody edited, wiped or restored from elsewhere: the next look at the service writes it anew."""

import asyncio
import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphpod_operator.kube.resources import Resource
from tests.scribbles import paths, put
from tests.unit.operator.objects import NAMESPACE, inference_service
from tests.unit.operator.world import World

HERE = Resource.InferenceService, NAMESPACE, "demo"


async def settled(status: Any) -> World:
    """What the operator makes of a service that has this status."""
    world = World()
    world.cluster.put(Resource.InferenceService, {**inference_service(), "status": status})
    for _ in range(2):
        await world.relist()
        await world.reconcile()
    return world


def written(world: World) -> Any:
    return world.cluster.objects[HERE]["status"]


def times(status: Any) -> Any:
    """The same without when its conditions changed, which a forger may have set."""
    bare = copy.deepcopy(status)
    for row in bare["conditions"]:
        del row["lastTransitionTime"]
    return bare


WHOLE = written(asyncio.run(settled({})))
PATHS = sorted(paths(WHOLE), key=str)


def heals(forged: Any) -> None:
    world = asyncio.run(settled(forged))
    assert times(written(world)) == times(WHOLE)


@pytest.mark.parametrize("captured", ["n/a", "", "/", "1/0", "-1/2", "1/2/3", "9" * 60 + "/1", "1/" + "0" * 60, "²/²"])
def test_a_forged_count_of_graphs_is_written_anew(captured: str) -> None:
    heals({**WHOLE, "graph": {**WHOLE["graph"], "captured": captured}})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just("n/a"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("type"), inner, max_size=3),
    max_leaves=8,
)


@example(("observedGeneration",), [None])
@given(st.sampled_from(PATHS), VALUES)
def test_any_field_of_a_status_may_hold_anything(at: Any, value: Any) -> None:
    heals(put(WHOLE, at, value))


@given(st.sets(st.sampled_from([path for path in PATHS if path]), max_size=12))
def test_any_part_of_a_status_may_be_lost(lost: set[Any]) -> None:
    forged = copy.deepcopy(WHOLE)
    for path in sorted(lost, key=len, reverse=True):
        place = forged
        for key in path[:-1]:
            place = place[key]
        place.pop(path[-1] if isinstance(place, dict) else 0)
    heals(forged)
