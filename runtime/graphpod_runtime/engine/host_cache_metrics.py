"""What is counted of the host tier of the KV cache."""

from graphpod_runtime.cache.files.file_tier import FileFailure, FileTier
from graphpod_runtime.cache.host_tier import HostCacheFailure, HostTier
from graphpod_runtime.engine.schedule.kv_space import KvSpace
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.series import Add

DIRECTIONS = ("store", "load")


class HostCacheMetrics:
    """Of one engine's scheduler. Names and labels are checked once, when this is made."""

    def __init__(self, counters: Counters, kv: KvSpace, tier: HostTier, page_size: int) -> None:
        self._counters, self._kv, self._tier, self._page_size = counters, kv, tier, page_size
        adder = counters.adder
        self._adders: list[Add] = [
            *(adder("graphpod_prefix_cache_tier_hit_tokens_total", tier=name) for name in ("device", "host")),
            *(adder("graphpod_host_cache_copied_bytes_total", direction=name) for name in DIRECTIONS),
            *(adder("graphpod_host_cache_copy_seconds_total", direction=name) for name in DIRECTIONS),
            adder("graphpod_host_cache_waits_total"),
            adder("graphpod_host_cache_full_waits_total"),
            adder("graphpod_host_cache_request_wait_seconds_total"),
            adder("graphpod_host_cache_evicted_tokens_total"),
            adder("graphpod_host_cache_skipped_tokens_total"),
            *(adder("graphpod_host_cache_failures_total", reason=reason.value) for reason in HostCacheFailure),
        ]
        self._adders += [
            adder("graphpod_rank_host_cache_copied_bytes_total", rank=str(rank), direction=name)
            for rank in range(len(tier.by_rank()))
            for name in DIRECTIONS
        ]
        if tier.files is not None:
            self._adders += [
                adder("graphpod_prefix_cache_tier_hit_tokens_total", tier="file"),
                *(adder("graphpod_host_cache_file_moved_bytes_total", direction=name) for name in ("write", "read")),
                *(adder("graphpod_host_cache_file_move_seconds_total", direction=name) for name in ("write", "read")),
                adder("graphpod_host_cache_file_request_wait_seconds_total"),
                adder("graphpod_host_cache_file_evicted_tokens_total"),
                *(adder("graphpod_host_cache_file_failures_total", reason=reason.value) for reason in FileFailure),
            ]
        self._counted = [0.0] * len(self._adders)
        self.update()

    def update(self) -> None:
        """Writes all as it is now."""
        kv, tier, copies = self._kv, self._tier, self._tier.copies
        self._counters.set("graphpod_host_cache_capacity_bytes", copies.slots * copies.page_bytes)
        self._counters.set("graphpod_host_cache_used_bytes", kv.tree.host_size * copies.page_bytes)
        failures = tier.failures | {HostCacheFailure.Allocation: copies.failed_allocations}
        now = [
            kv.hit_tokens - tier.hit_tokens,
            tier.hit_tokens - (tier.files.hit_tokens if tier.files is not None else 0),
            tier.stored * copies.page_bytes,
            tier.loaded * copies.page_bytes,
            copies.store_seconds,
            copies.load_seconds,
            tier.waits,
            tier.waits_for_all,
            tier.wait_seconds,
            kv.tree.host_evicted * self._page_size,
            tier.skipped_tokens,
            *(failures[reason] for reason in HostCacheFailure),
            *(moved for both in tier.by_rank() for moved in both),
            *self._of_files(tier.files),
        ]
        for add, total, before in zip(self._adders, now, self._counted, strict=True):
            if total != before:
                add(total - before)
        self._counted = now

    def _of_files(self, files: FileTier | None) -> list[float]:
        if files is None:
            return []
        folder, each = files.folder, files.pool.page_bytes
        self._counters.set("graphpod_host_cache_file_capacity_bytes", folder.size)
        self._counters.set("graphpod_host_cache_file_used_bytes", folder.used)
        return [
            files.hit_tokens,
            files.written * each,
            files.read * each,
            files.write_seconds,
            files.read_seconds,
            files.wait_seconds,
            folder.evicted * self._page_size,
            *(files.failures[reason] for reason in FileFailure),
        ]
