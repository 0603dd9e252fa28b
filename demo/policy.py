"""The resolved policy of a service as a person reads it: asked, planned, running, and who decided."""

from demo.objects import Manifest

COLUMNS = ("requested", "planned", "effective")


def describe(found: Manifest) -> str:
    """status.graph as lines."""
    graph = found["status"]["graph"]
    lines = [f"  {'phase':<8} " + " ".join(f"{column:<10}" for column in COLUMNS) + " captured  self-check"]
    for phase in ("prefill", "decode"):
        state, sizes = graph[phase], graph[phase]["sizes"]
        words = " ".join(f"{state.get(column, '-'):<10}" for column in COLUMNS)
        count = f"{sizes['captured']}/{sizes['planned']}"
        lines.append(f"  {phase:<8} {words} {count:<9} {state.get('selfCheck', '-')}")
    lines.append(
        f"  backend {graph.get('backend', 'none')}, configuration {graph['configHash']}, "
        f"rules {graph['resolverRevision']}"
    )
    for decision in graph.get("decisions", []):
        who = f"{decision['rule']} ({decision['stage']}, {decision['phase']}, {decision['outcome']})"
        lines.append(f"  decision {who}: {decision['because']}")
        lines.append(f"           hint: {decision['hint']}")
    if gates := graph.get("gates"):
        lines.append(f"  gates decided per batch: {', '.join(gates)}")
    return "\n".join(lines)
