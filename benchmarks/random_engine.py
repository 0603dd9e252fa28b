"""Engines over random weights, as benchmarks measure them: their start, the clock, and where figures come from."""

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from graphpod_policy import Device, EngineConfig, Features, GraphRequest, ModelConfig, __version__, resolve
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start.device_state import LoadModel
from graphpod_runtime.models.random import random_model

SHAPES = Path(__file__).parent / "shapes"
ROUNDS = 30


def ready(
    model: Path, features: Features, request: GraphRequest, dtype: str, load: LoadModel = random_model, **settings: Any
) -> Runner:
    """A Ready runner of the folder `model`, of which config.json is read, or what `load` reads; `settings` are those of
    an EngineConfig."""
    config = EngineConfig.of(
        features,
        request,
        resolve(features, request),
        model=ModelConfig(model.name, str(model)),
        dtype=dtype,
        **settings,
    )
    runner = Runner(config, lambda report: None, load=load)
    runner.start()
    return runner


def median(work: Callable[[], object], device: Device) -> float:
    """Seconds of `work`, its launch included, by the clock of ROUNDS runs."""
    found = []
    for _ in range(ROUNDS):
        _wait(device)
        began = time.perf_counter()
        work()
        _wait(device)
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def provenance(device: Device) -> dict[str, Any]:
    """Where figures of today come from; `gpu` is None on a CPU."""
    return {
        "gpu": torch.cuda.get_device_name() if device is Device.Cuda else None,
        "torch": torch.__version__,
        "graphpod": __version__,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def _wait(device: Device) -> None:
    """Returns when the device has nothing to do."""
    if device is Device.Cuda:
        torch.cuda.synchronize()
