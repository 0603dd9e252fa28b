"""What a start does for an engine that is to sleep, or to take new weights: its weights into a span, and what brings
them back."""

from collections.abc import Callable
from pathlib import Path

import torch

from graphpod_policy import EngineConfig, ExitCode
from graphpod_policy.start.obstacle import Obstacle
from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.progress import OnProgress
from graphpod_runtime.base.shapes import dtype_of
from graphpod_runtime.engine.sleep.refill import Files, Refill
from graphpod_runtime.engine.sleep.sleeper import Sleeper
from graphpod_runtime.engine.start import memory
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.engine.start.device_state import DeviceState, LoadModel, loaded
from graphpod_runtime.memory.relocation import bytes_of, relocate
from graphpod_runtime.memory.span import Span
from graphpod_runtime.models.loader import load_model


class Sleeping:
    """Of one model, which it loads: before anything holds an address of it."""

    def __init__(self, config: EngineConfig, place: Place, load: LoadModel, read: OnProgress) -> None:
        self._one, self._reloads = config.features.ranks == 1, config.features.reload
        self.weights: Span | None = None
        """Where they lie; None where they stay."""
        self.refill: Refill | None = None
        reads_folder = load is load_model and config.model.stream is None
        again = self._one and reads_folder and (config.features.sleep or self._reloads)
        folder = Path(config.model.path)
        try:
            before = Files.of(folder) if again else None
            self.model = model = loaded(config, place, load, read)
            if before is not None:
                self.refill = Refill.of(folder, model, dtype_of(config.element), before)
        except ModelInvalid as error:
            raise StartFailure(ExitCode.ModelInvalid, str(error)) from error
        if config.features.sleep:
            self.weights = place.span(bytes_of(model.module()), grows=True)
            try:
                relocate(model.module(), self.weights, read)
            except torch.OutOfMemoryError as error:
                what = f"spec.engine.sleep: the weights of {config.model.name} do not fit while they are moved: {error}"
                raise StartFailure.by(Obstacle.of(ExitCode.WeightsTooLarge, what)) from error

    def sleeper(self, state: DeviceState, check: Callable[[OnProgress], None]) -> Sleeper | None:
        """What the Ready engine sleeps and reloads by; `check` compares its graphs once more."""
        if not self._one:
            return None

        def settled() -> None:
            state.fill_scratch()
            state.addresses.verify()

        cache = state.attention.cache
        return Sleeper(self.weights, cache, self.refill, memory.available_bytes, settled, check, self._reloads)
