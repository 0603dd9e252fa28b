"""What the tests of the reconciler start from."""

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
