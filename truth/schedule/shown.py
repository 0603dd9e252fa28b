"""What an engine of the matrix has shown: that drafts, a host tier or files did something, and launches of drafts."""

from graphpod_runtime.engine.runner import Runner

SHOWN = {
    "drafts": "draft was right",
    "host_tier": "page came back from the host",
    "files": "page came back from a file",
}
"""What shows that an engine's own passes did something, by what the scenario has."""


def shown(runner: Runner) -> tuple[float, float, float]:
    """So far, of each of SHOWN."""
    tier = runner.host_tier
    loaded = 0 if tier is None else tier.loaded
    read = 0 if tier is None or tier.files is None else tier.files.read
    return runner.counters.value("graphpod_speculation_accepted_tokens_total"), loaded, read


def draft_replays(runner: Runner) -> int:
    """So far, of the graphs of a draft model: one segment each."""
    return int(runner.counters.value("graphpod_graph_replays_total", phase="draft"))
