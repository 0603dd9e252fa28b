"""The resolved policy of a service as a person reads it: requested, planned, running, and why it is a weaker one."""

import textwrap

from demo.objects import Manifest

COLUMNS = ("requested", "planned", "effective")
PHASES = ("prefill", "decode")
WIDTH = 100


def describe(found: Manifest) -> str:
    """status.graph as lines. Decisions only of a phase that runs something other than planned: `kubectl describe` has
    the rest."""
    graph = found["status"]["graph"]
    lines = [f"  {'phase':<8} " + " ".join(f"{column:<10}" for column in COLUMNS) + " captured  self-check"]
    for phase in PHASES:
        state, sizes = graph[phase], graph[phase]["sizes"]
        words = " ".join(f"{state.get(column, '-'):<10}" for column in COLUMNS)
        count = f"{sizes['captured']}/{sizes['planned']}"
        lines.append(f"  {phase:<8} {words} {count:<9} {state.get('selfCheck', '-')}")
    weaker = {phase for phase in PHASES if graph[phase].get("effective") not in (None, graph[phase]["planned"])}
    for decision in graph.get("decisions", []):
        if weaker.intersection(decision["phase"].split(", ")):
            text = f"{decision['phase']}: {decision['because']} ({decision['rule']}); {decision['hint']}"
            lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)
