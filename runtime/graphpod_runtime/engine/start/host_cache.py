"""The host tier of a start: its pool, and what a load costs against prefill by the clock of this start."""

import logging
import math
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch

from graphpod_policy import EngineConfig, __version__
from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.cache.files.file_tier import FileFailure, FileTier
from graphpod_runtime.cache.files.identity import identity
from graphpod_runtime.cache.files.page_folder import PageFolder
from graphpod_runtime.cache.host_pool import HostPool, slot_shape
from graphpod_runtime.cache.host_tier import CopyFailed, HostCacheFailure, HostTier, LoadCosts, PoolParts
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pinned_pool import SLAB_BYTES, PinnedPool, out_of_memory
from graphpod_runtime.distributed.agreement import ALONE, Ranks
from graphpod_runtime.engine.capture.debug import FaultKind, Mode, Switches
from graphpod_runtime.engine.start.memory import available_bytes
from graphpod_runtime.models.model import Model
from graphpod_runtime.wire.counters import Counters

logger = logging.getLogger("graphpod.engine")


def host_tier(
    config: EngineConfig,
    cache: KvCache,
    token_seconds: float,
    counters: Counters,
    switches: Switches,
    ranks: Ranks = ALONE,
    known: Callable[[], bytes] = bytes,
) -> HostTier | None:
    """The tier that `config` asks for; None where it asks for none, or where its first slots cannot be allocated, which
    is counted: the engine serves without it, at all `ranks` if at one. `token_seconds`: of a prompt token in a prefill
    pass. In the debug mode Reload every hit is loaded, whatever it costs. Ranks share the size of a machine's pool by
    the bytes that each has of a page. `known`: what the bytes of its pages depend on, for the tier of files under it.
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
    own_parts = PoolParts(parts, slots, ranks.least(pool.slots))
    return HostTier(pool, costs, config.page_size, parts=own_parts, files=_files(config, pool, counters, known))


def page_identity(config: EngineConfig, model: Model, attention: AttentionBackend) -> bytes:
    """What the bytes of pages in files depend on. Another version computes other last bits, and so may another device
    or another attention: none of them finds what the other has written."""
    cache = attention.cache
    description = Path(config.model.path) / "config.json"
    words = {
        "engine": __version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(cache.device) if cache.device != HOST else HOST,
        "model": sha256(description.read_bytes()).hexdigest() if description.is_file() else "",
        "shape": model.shape,
        "attention": attention.name,
        "cache": (cache.keys.dtype, cache.page_size, slot_shape(cache)),
        "scales": cache.scales,
    }
    module = model.module()
    return identity(words, chain(module.named_parameters(), module.named_buffers()))


def _files(
    config: EngineConfig, pool: HostPool | PinnedPool, counters: Counters, known: Callable[[], bytes]
) -> FileTier | None:
    """The tier of files under `pool`; None where none is asked for, or where the folder cannot be used."""
    folder, size = config.features.host_cache_folder, config.features.host_cache_file_bytes
    if folder is None or size is None:
        return None
    try:
        files = PageFolder(Path(folder), size)
    except OSError as error:
        counters.add("graphpod_host_cache_file_failures_total", reason=FileFailure.Folder)
        logger.warning("host KV cache: the engine serves without files: %s", error)
        return None
    return FileTier(files, known(), config.page_size, pool)


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
