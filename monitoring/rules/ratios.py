"""Ratios of graphs that alerts and dashboards share."""

from monitoring.rules.row import PHASE, Recording, by

REPLAYED = "service:graphpod_replay:ratio_rate5m"
PADDED = "service:graphpod_padding:ratio_rate5m"

RECORDINGS = (
    Recording(
        REPLAYED,
        f"{by(PHASE)} (rate(graphpod_graph_replays_total[5m]))\n"
        f"/\n{by(PHASE)} (rate(graphpod_forward_passes_total[5m]))",
        PHASE,
        "Share of forward passes that ran on a graph.",
    ),
    Recording(
        PADDED,
        f'{by(PHASE)} (rate(graphpod_graph_tokens_total{{kind="padding"}}[5m]))\n'
        f"/\n{by(PHASE)} (rate(graphpod_graph_tokens_total[5m]))",
        PHASE,
        "Share of the rows of replays that were padding.",
    ),
)
