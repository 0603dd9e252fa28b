"""The host tier of a start: its pool, and what a load costs against prefill by the clock of this start."""

import logging
import math

from graphpod_policy import EngineConfig
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.cache.host_pool import HostPool, slot_shape
from graphpod_runtime.cache.host_tier import HostCacheFailure, HostTier, LoadCosts
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pinned_pool import PinnedPool, out_of_memory
from graphpod_runtime.engine.start.memory import available_bytes
from graphpod_runtime.wire.counters import Counters

logger = logging.getLogger("graphpod.engine")


def host_tier(
    config: EngineConfig, cache: KvCache, token_seconds: float, counters: Counters, *, always: bool
) -> HostTier | None:
    """The tier that `config` asks for; None where it asks for none, or where its first slots cannot be allocated, which
    is counted: the engine serves without it. `token_seconds`: of a prompt token in a prefill pass. `always`: every hit
    is loaded, whatever it costs.
    """
    size = config.features.host_cache_bytes
    if size is None:
        return None
    if size < (page := math.prod(slot_shape(cache))):
        counters.add("graphpod_host_cache_failures_total", reason=HostCacheFailure.Allocation)
        logger.warning("host KV cache: %d bytes hold no page, which takes %d: raise hostCache.size", size, page)
        return None
    try:
        pool = HostPool(cache, size) if cache.device == HOST else PinnedPool(cache, size, available_bytes)
    except (RuntimeError, MemoryError, OSError) as error:
        if not out_of_memory(error):
            raise
        counters.add("graphpod_host_cache_failures_total", reason=HostCacheFailure.Allocation)
        logger.warning("host KV cache: %d bytes cannot be allocated, the engine serves without it: %s", size, error)
        return None
    load, page = pool.measured()
    costs = LoadCosts(0.0, 0.0, 1.0) if always else LoadCosts(load, page, token_seconds)
    tier = HostTier(pool, costs, config.page_size)
    logger.info(
        "host KV cache: %d pages of %d bytes; a page is loaded in %.0f us and computed in %.0f us",
        size // pool.page_bytes,
        pool.page_bytes,
        1e6 * page,
        1e6 * token_seconds * config.page_size,
    )
    return tier
