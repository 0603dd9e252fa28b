"""The contracts hold on both devices: what asks for `device` runs on the CPU, and with `-m gpu` on a GPU."""

import pytest
import torch

from graphpod_policy import Device
from graphpod_runtime.engine.start.device import Place, place_of
from tests.unit.runtime.conftest import as_written, engine_config, llama_folder, started  # noqa: F401

torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture(scope="session", params=[Device.Cpu, pytest.param(Device.Cuda, marks=pytest.mark.gpu)], ids=str)
def device(request: pytest.FixtureRequest) -> Device:
    found: Device = request.param
    return found


@pytest.fixture
def place(device: Device) -> Place:
    """The device, as a start sees it."""
    return place_of(device)
