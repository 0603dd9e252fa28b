"""The text of `/metrics` that an engine writes of its ladders, after passes of given rows."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from graphpod_policy import Phase
from graphpod_policy.metrics import GRAPH_ROWS
from graphpod_policy.rules import padding_refused

PREFILL = (4, 8, 16, 32)
DECODE = (1, 2, 4, 8)
MEMORY_BYTES = 3 << 20


def exposition(
    rows: Mapping[Phase, Sequence[int]],
    ladders: Mapping[Phase, Sequence[int]] | None = None,
    labels: str = "",
) -> bytes:
    """Passes that replay, unless PaddingGate refuses them. `labels` go before those of the engine, as Prometheus adds
    its own.
    """
    lines = ["# TYPE graphpod_graph_requested_rows histogram", 'graphpod_build_info{version="0.1.0",torch="2.13"} 1.0']
    for phase, ladder in (ladders or {Phase.Prefill: PREFILL, Phase.Decode: DECODE}).items():
        policy = "Breakable" if phase is Phase.Prefill else "Full"
        base = f'{labels}phase="{phase}",backend="Recorder"'
        graph = f'{base},policy="{policy}"'
        counts, replays = [0] * (len(GRAPH_ROWS) + 1), dict.fromkeys(ladder, 0)
        padding = dict.fromkeys(ladder, 0)
        for count in rows.get(phase, ()):
            counts[bisect_left(GRAPH_ROWS, count)] += 1
            size = ladder[bisect_left(ladder, count)]
            if phase is Phase.Prefill and padding_refused(count, size):
                continue
            replays[size] += 1
            padding[size] += size - count
        info = f'{base},requested="Auto",planned="{policy}",effective="{policy}"'
        lines.append(f"graphpod_graph_policy_info{{{info}}} 1.0")
        lines.append(f'graphpod_graph_memory_bytes{{{graph},kind="pool"}} {float(MEMORY_BYTES)}')
        lines.append(f'graphpod_graph_fallbacks_total{{{base},reason="SizeAboveLadder"}} 2.0')
        below = 0
        for bound, count in zip((*map(float, GRAPH_ROWS), "+Inf"), counts, strict=True):
            below += count
            lines.append(f'graphpod_graph_requested_rows_bucket{{{base},le="{bound}"}} {float(below)}')
        lines.append(f"graphpod_graph_requested_rows_count{{{base}}} {float(below)}")
        lines.append(f"graphpod_graph_requested_rows_sum{{{base}}} {float(sum(rows.get(phase, ())))}")
        for size in ladder:
            lines.append(f'graphpod_graph_size_replays_total{{{graph},size="{size}"}} {float(replays[size])}')
            lines.append(f'graphpod_graph_size_padding_tokens_total{{{graph},size="{size}"}} {float(padding[size])}')
    return "\n".join((*lines, "")).encode()
