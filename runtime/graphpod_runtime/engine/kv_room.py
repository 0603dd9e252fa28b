"""How many pages the KV cache gets."""

from collections.abc import Callable

from graphpod_policy import EngineConfig, ExitCode
from graphpod_runtime.cache.kv import page_bytes
from graphpod_runtime.engine.device import Place
from graphpod_runtime.engine.failure import StartFailure
from graphpod_runtime.graphs.memory import MARGIN
from graphpod_runtime.models.base import ModelShape, dtype_of


def pages_of_one(config: EngineConfig) -> int:
    """Pages of one sequence of maxModelLen tokens."""
    return -(-config.max_model_len // config.page_size)


def pages(
    config: EngineConfig, shape: ModelShape, place: Place, eager_prefill: Callable[[], object], decode_bytes: int
) -> int:
    """Pages to allocate, the scratch page not counted: those of kvCacheMemory; else what stays free beside the decode
    graphs (`decode_bytes`) and the measured peak of `eager_prefill`, at most maxBatch full contexts.

    StartFailure when not even one full context fits.
    """
    one_page, least = page_bytes(shape, config.page_size, dtype_of(config.dtype)), pages_of_one(config)
    if config.kv_cache_bytes is not None:
        room, count = config.kv_cache_bytes, config.kv_cache_bytes // one_page
    else:
        peak = place.peak_of(eager_prefill)
        room = int(place.available_bytes() * (1 - MARGIN)) - peak - decode_bytes
        count = min(config.max_batch * least, room // one_page)
    if count < least:
        raise StartFailure(
            ExitCode.ConfigInvalid,
            f"the KV cache has room for {max(0, count)} pages ({max(0, room)} bytes), one sequence of maxModelLen "
            f"{config.max_model_len} needs {least} of {one_page} bytes; "
            "raise the memory limit or kvCacheMemory, or lower maxModelLen",
        )
    return count
