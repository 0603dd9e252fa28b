"""What the tests of the operator start from."""

import sys
from collections.abc import Iterator

import pytest

from graphpod_operator.kube.resources import Resource
from tests.unit.operator.objects import inference_service
from tests.unit.operator.world import World


@pytest.fixture
async def world() -> World:
    made = World()
    made.cluster.put(Resource.InferenceService, inference_service())
    await made.relist()
    return made


@pytest.fixture(autouse=True)
def usual_recursion_limit() -> Iterator[None]:
    """That of the operator. torch's compiler raises the limit of its process, which may have run other tests."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)
