"""The section of the board of serving for KV pages in host memory and in files."""

from monitoring.boards.row import Kind, Panel, Query, Section, Unit, rate, selected

_NO_TIER = "Empty if spec.engine.hostCache is not set."
_NO_FILES = "Empty if spec.engine.hostCache.file is not set."
_BY_POD = "sum by (namespace, pod)"
HOST_CACHE = Section(
    "Host KV cache",
    (
        Panel(
            "Prompt tokens found, by tier",
            "Tokens a second that were in the KV cache, in host memory or in files. Host and file near 0: remove "
            "spec.engine.hostCache.",
            Kind.Lines,
            Unit.TokensPerSecond,
            (Query(f"sum by (tier) ({rate('graphpod_prefix_cache_tier_hit_tokens_total')})", "{{tier}}"),),
            _NO_TIER,
        ),
        Panel(
            "Host memory with KV pages",
            "What holds pages, and what there is. On a GPU the capacity grows after Ready until it is pinned.",
            Kind.Lines,
            Unit.Bytes,
            (
                Query(f"max by (namespace, pod) ({selected('graphpod_host_cache_used_bytes')})", "{{pod}} used"),
                Query(
                    f"max by (namespace, pod) ({selected('graphpod_host_cache_capacity_bytes')})", "{{pod}} capacity"
                ),
            ),
            _NO_TIER,
        ),
        Panel(
            "Tokens lost and computed all the same",
            "Evicted: the tier was full; as many as hits: raise its size. Skipped: computing them took less time.",
            Kind.Lines,
            Unit.TokensPerSecond,
            (
                Query(f"{_BY_POD} ({rate('graphpod_host_cache_evicted_tokens_total')})", "{{pod}} evicted"),
                Query(f"{_BY_POD} ({rate('graphpod_host_cache_skipped_tokens_total')})", "{{pod}} skipped"),
            ),
            _NO_TIER,
        ),
        Panel(
            "Copies of KV pages",
            "Bytes a second to the host (store) and back to the device (load).",
            Kind.Lines,
            Unit.BytesPerSecond,
            (Query(f"sum by (direction) ({rate('graphpod_host_cache_copied_bytes_total')})", "{{direction}}"),),
            _NO_TIER,
            width=6,
        ),
        Panel(
            "Time in copies",
            "Share of the time in which a pod copies pages. Near 100 %: the link to the host is the limit.",
            Kind.Lines,
            Unit.Share,
            (
                Query(
                    f"max by (namespace, pod, direction) ({rate('graphpod_host_cache_copy_seconds_total')})",
                    "{{pod}} {{direction}}",
                ),
            ),
            _NO_TIER,
            width=6,
        ),
        Panel(
            "Requests waiting for pages",
            "Requests whose first pass waits for copies of their pages, on average. Others decode meanwhile.",
            Kind.Lines,
            Unit.Number,
            (Query(f"{_BY_POD} ({rate('graphpod_host_cache_request_wait_seconds_total')})", "{{pod}}"),),
            _NO_TIER,
            width=6,
        ),
        Panel(
            "Waits and failures",
            "Passes launched behind copies that had not landed, of their pages or (all) any after a failure; failed "
            "copies and allocations, by reason. Good: 0 failures.",
            Kind.Lines,
            Unit.PerSecond,
            (
                Query(f"{_BY_POD} ({rate('graphpod_host_cache_waits_total')})", "{{pod}} waits"),
                Query(f"{_BY_POD} ({rate('graphpod_host_cache_full_waits_total')})", "{{pod}} waits for all"),
                Query(f"sum by (reason) ({rate('graphpod_host_cache_failures_total')})", "failed: {{reason}}"),
            ),
            _NO_TIER,
            width=6,
        ),
        Panel(
            "Files: bytes",
            "Bytes a second of KV pages that go to files (write) and come from them (read).",
            Kind.Lines,
            Unit.BytesPerSecond,
            (Query(f"sum by (direction) ({rate('graphpod_host_cache_file_moved_bytes_total')})", "{{direction}}"),),
            _NO_FILES,
            width=6,
        ),
        Panel(
            "Files: size",
            "What the files of a pod take, and what they may take.",
            Kind.Lines,
            Unit.Bytes,
            (
                Query(f"max by (namespace, pod) ({selected('graphpod_host_cache_file_used_bytes')})", "{{pod}} used"),
                Query(
                    f"max by (namespace, pod) ({selected('graphpod_host_cache_file_capacity_bytes')})",
                    "{{pod}} capacity",
                ),
            ),
            _NO_FILES,
            width=6,
        ),
        Panel(
            "Files: time",
            "Average number of requests that wait in the queue for files, and of files that are written or read.",
            Kind.Lines,
            Unit.Number,
            (
                Query(f"{_BY_POD} ({rate('graphpod_host_cache_file_request_wait_seconds_total')})", "{{pod}} requests"),
                Query(f"sum by (direction) ({rate('graphpod_host_cache_file_move_seconds_total')})", "{{direction}}"),
            ),
            _NO_FILES,
            width=6,
        ),
        Panel(
            "Files: lost",
            "Pages a second that did not come to files or from them, by reason, and tokens whose files made room. "
            "Overtaken: the disk is slower than the evictions.",
            Kind.Lines,
            Unit.PerSecond,
            (
                Query(f"sum by (reason) ({rate('graphpod_host_cache_file_failures_total')})", "{{reason}}"),
                Query(f"{_BY_POD} ({rate('graphpod_host_cache_file_evicted_tokens_total')})", "{{pod}} tokens evicted"),
            ),
            _NO_FILES,
            width=6,
        ),
    ),
)
