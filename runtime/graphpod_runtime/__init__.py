"""graphpod's inference engine: front process, engine process, graphs, models.

`Engine`, `AsyncEngine` and `SamplingOptions` are the engine as a library (docs/how-to/python.md). Each is imported when
it is first named: torch comes with an engine, not with this package.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphpod_runtime.api.async_engine import AsyncEngine
    from graphpod_runtime.api.engine import Engine
    from graphpod_runtime.api.errors import EngineClosed, EngineFailed, RequestRefused
    from graphpod_runtime.api.results import Chunk, Embedded, Generated, Usage
    from graphpod_runtime.api.sampling_options import SamplingOptions

# MKL may otherwise add up a product in another order where memory begins elsewhere, so that the replay of a graph
# differs from the code that was captured: seen on an AMD EPYC. MKL reads it at its first product.
os.environ.setdefault("MKL_CBWR", "AUTO")

__all__ = [
    "AsyncEngine",
    "Chunk",
    "Embedded",
    "Engine",
    "EngineClosed",
    "EngineFailed",
    "Generated",
    "RequestRefused",
    "SamplingOptions",
    "Usage",
]

_MODULES = {
    "AsyncEngine": "async_engine",
    "Chunk": "results",
    "Embedded": "results",
    "Engine": "engine",
    "EngineClosed": "errors",
    "EngineFailed": "errors",
    "Generated": "results",
    "RequestRefused": "errors",
    "SamplingOptions": "sampling_options",
    "Usage": "results",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.api.{_MODULES[name]}"), name)
