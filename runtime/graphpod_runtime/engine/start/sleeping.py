"""What a start does for an engine that is to sleep: its weights into a span, and what brings them back."""

from collections.abc import Callable
from pathlib import Path

from graphpod_policy import EngineConfig
from graphpod_runtime.base.progress import OnProgress
from graphpod_runtime.base.shapes import dtype_of
from graphpod_runtime.engine.sleep.refill import Refill
from graphpod_runtime.engine.sleep.sleeper import Sleeper
from graphpod_runtime.engine.start import memory
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.engine.start.device_state import DeviceState, LoadModel
from graphpod_runtime.memory.relocation import bytes_of, relocate
from graphpod_runtime.memory.span import Span
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.model import Model


class Sleeping:
    """Of one model, which has just been loaded: before anything holds an address of it."""

    def __init__(self, config: EngineConfig, place: Place, model: Model, load: LoadModel, read: OnProgress) -> None:
        self._one = config.features.ranks == 1
        self.weights: Span | None = None
        """Where they lie; None where they stay."""
        self.refill: Refill | None = None
        if self._one and load is load_model:
            self.refill = Refill.of(Path(config.model.path), model, dtype_of(config.element))
        if config.features.sleep:
            self.weights = place.span(bytes_of(model.module()), grows=True)
            relocate(model.module(), self.weights, read)

    def sleeper(self, state: DeviceState, check: Callable[[], None]) -> Sleeper | None:
        """What the Ready engine sleeps and reloads by; `check` compares its graphs once more."""
        if not self._one:
            return None

        def settled() -> None:
            state.fill_scratch()
            state.addresses.verify()

        cache = state.attention.cache
        return Sleeper(self.weights, cache, self.refill, memory.available_bytes, settled, check)
