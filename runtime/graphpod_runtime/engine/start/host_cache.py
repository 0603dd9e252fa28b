"""The host tier of a start: its pool, and what a load costs against prefill by the clock of this start."""

import logging
import math
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from graphpod_policy import EngineConfig
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.cache.host_pool import HostPool, slot_shape
from graphpod_runtime.cache.host_tier import CopyFailed, HostCacheFailure, HostTier, LoadCosts, PoolParts
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pinned_pool import SLAB_BYTES, PinnedPool, out_of_memory
from graphpod_runtime.distributed.agreement import ALONE, Ranks
from graphpod_runtime.engine.capture.debug import FaultKind, Mode, Switches
from graphpod_runtime.engine.start.memory import available_bytes
from graphpod_runtime.wire.counters import Counters

logger = logging.getLogger("graphpod.engine")


def host_tier(
    config: EngineConfig,
    cache: KvCache,
    token_seconds: float,
    counters: Counters,
    switches: Switches,
    ranks: Ranks = ALONE,
) -> HostTier | None:
    """The tier that `config` asks for; None where it asks for none, or where its first slots cannot be allocated, which
    is counted: the engine serves without it, at all `ranks` if at one. `token_seconds`: of a prompt token in a prefill
    pass. In the debug mode Reload every hit is loaded, whatever it costs. Ranks share the size of a machine's pool by
    the bytes that each has of a page.
    """
    size = config.features.host_cache_bytes
    if size is None:
        return None
    page, here = math.prod(slot_shape(cache)), config.features.ranks_of_node
    parts = tuple(part for (part,) in ranks.gathered([page]))
    machines = [sum(parts[first : first + here]) for first in range(0, ranks.count, here)]
    if not (slots := size // max(machines)):
        counters.add("graphpod_host_cache_failures_total", reason=HostCacheFailure.Allocation)
        logger.warning(
            "host KV cache: %d bytes hold no page, which takes %d: raise hostCache.size", size, max(machines)
        )
        return None
    pool = _pool(cache, slots * page, here, switches)
    if not ranks.least(int(pool is not None)) or pool is None:
        counters.add("graphpod_host_cache_failures_total", reason=HostCacheFailure.Allocation)
        if pool is not None:
            logger.warning("host KV cache: another rank cannot allocate its part, so all serve without it")
        return None
    pool.at_once = ranks.least(pool.at_once)
    load, each = (ranks.most(round(1e9 * seconds)) / 1e9 for seconds in pool.measured())
    _fail(pool, switches)
    costs = LoadCosts(0.0, 0.0, 1.0) if Mode.Reload in switches.modes else LoadCosts(load, each, token_seconds)
    logger.info(
        "host KV cache: %d pages of %d bytes; a page is loaded in %.0f us and computed in %.0f us",
        slots,
        sum(parts),
        1e6 * each,
        1e6 * token_seconds * config.page_size,
    )
    return HostTier(pool, costs, config.page_size, parts=PoolParts(parts, slots, ranks.least(pool.slots)))


def _fail(pool: HostPool | PinnedPool, switches: Switches) -> None:
    """Makes those copies of `pool` fail that a fault asks for."""
    for reason in (HostCacheFailure.Store, HostCacheFailure.Load):
        if not any(fault[:2] == (FaultKind.HostCache, reason) for fault in switches.faults):
            continue
        name = reason.value.lower()
        setattr(pool, name, _failing(getattr(pool, name), partial(switches.fires, FaultKind.HostCache, reason)))


def _failing(copy: Callable[..., Any], fails: Callable[[int], bool]) -> Callable[..., Any]:
    """`copy`, whose n-th call fails where `fails` says so."""
    calls = count(1)

    def copied(*call: Any) -> Any:
        if fails(next(calls)):
            raise CopyFailed("injected fault")
        return copy(*call)

    return copied


def _pool(cache: KvCache, size: int, ranks: int, switches: Switches) -> HostPool | PinnedPool | None:
    """Of one rank, of so many of its machine; None where it cannot be allocated."""
    try:
        if switches.fires(FaultKind.HostCache, HostCacheFailure.Allocation, 1):
            raise MemoryError("injected fault")
        if cache.device == HOST:
            return HostPool(cache, size)
        # All ranks allocate at the same time: each leaves the others a piece.
        return PinnedPool(cache, size, lambda: available_bytes() - (ranks - 1) * SLAB_BYTES)
    except (RuntimeError, MemoryError, OSError) as error:
        if not out_of_memory(error):
            raise
        logger.warning("host KV cache: %d bytes cannot be allocated, the engine serves without it: %s", size, error)
        return None
