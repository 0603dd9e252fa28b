"""The section of the board of graphs for pods of several ranks: what each of them holds, captures and computes."""

from monitoring.boards.row import Kind, Panel, Query, Section, Unit, rate, selected


def _each_rank(of_ranks: str, of_one: str, labels: str = "") -> str:
    """A sum of `of_ranks` for each rank, of `of_one` for a pod of one, which has no series of ranks."""
    of_ranks, of_one = selected(of_ranks), selected(of_one)
    ranks, pods = f"sum by (namespace, pod, rank{labels}) ({of_ranks})", f"sum by (namespace, pod{labels}) ({of_one})"
    return f"{ranks} or ({pods} unless on (namespace, pod) {of_ranks})"


RANKS = Section(
    "Ranks",
    (
        Panel(
            "Memory of each rank",
            "Bytes that each rank of a pod has reserved on its GPU: weights, KV cache and graphs. A pod of one GPU has "
            "no number of a rank; its graphs are in Memory of graphs. Good: ranks of a stage have the same. Stages of "
            "a pipeline differ by their layers.",
            Kind.Bars,
            Unit.Bytes,
            (
                Query(
                    _each_rank("graphpod_rank_memory_bytes", "graphpod_memory_bytes", ", kind"),
                    "{{pod}} {{rank}} {{kind}}",
                ),
            ),
            width=12,
        ),
        Panel(
            "Time to capture, by rank",
            "Seconds in which each rank of a pod captured its graphs. Ranks wait for the slowest one. Good: about the "
            "same for all. One that is much slower: look at the clock and the temperature of its GPU.",
            Kind.Bars,
            Unit.Seconds,
            (
                Query(
                    _each_rank("graphpod_rank_capture_seconds", "graphpod_graph_size_capture_seconds"),
                    "{{pod}} {{rank}}",
                ),
            ),
            "Empty if no phase has graphs.",
            width=12,
        ),
        Panel(
            "Rows of experts, by rank",
            "Rows a second that each rank computes of its experts, with expert parallel. All ranks wait for the one "
            "with most. Good: about the same for all. One that has much more has experts that are chosen often: fewer "
            "groups (spec.parallelism.expert) even it out.",
            Kind.Lines,
            Unit.Number,
            (Query(f"sum by (namespace, pod, rank) ({rate('graphpod_expert_rows_total')})", "{{pod}} {{rank}}"),),
            "Empty without expert parallel.",
            width=12,
        ),
        Panel(
            "Host KV cache, by rank",
            "Bytes per second that each rank of a pod copies to host memory or back: its part of each page. Good: "
            "ranks of a stage have the same. Stages of a pipeline differ by their layers.",
            Kind.Lines,
            Unit.BytesPerSecond,
            (
                Query(
                    f"sum by (namespace, pod, rank, direction) ({rate('graphpod_rank_host_cache_copied_bytes_total')})",
                    "{{pod}} {{rank}} {{direction}}",
                ),
            ),
            "Empty without a host KV cache, or with one rank.",
            width=12,
        ),
    ),
)
