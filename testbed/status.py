"""The table of `python -m testbed status`."""

from collections.abc import Sequence
from pathlib import Path

from testbed.process import alive, rss_bytes
from testbed.record import Component, Record

COLUMNS = ("COMPONENT", "STATE", "PID", "RSS", "LOG")


def table(record: Record | None, name: str, kubeconfig: Path, others: Sequence[str]) -> str:
    """What runs in testbed `name`, what it costs, where to look, how to go on."""
    also = [f"other testbeds: {', '.join(others)} (choose with --name)"] if others else []
    if record is None:
        return "\n".join([f"testbed {name} is not up: `python -m testbed up --name {name}` brings it up", *also])
    state = "up" if record.ready and not record.dead() else "broken: the next `up` or `down` cleans it"
    nodes = f", {record.nodes} node(s)" if record.nodes else ""
    rows = [COLUMNS, *(_row(c) for c in record.components)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    total = sum(rss_bytes(c.process) for c in record.components)
    return "\n".join(
        [
            f"testbed {name}: level {record.level}{nodes}, {state}",
            "",
            *lines,
            "",
            f"memory together: {total / 1e6:.0f} MB",
            f"use it: export KUBECONFIG={kubeconfig}   or: python -m testbed kubectl --name {name} get pods -A",
            f"stop it: python -m testbed down --name {name}",
            *also,
        ]
    )


def _row(component: Component) -> tuple[str, ...]:
    process = component.process
    state, rss = ("running", f"{rss_bytes(process) / 1e6:.0f} MB") if alive(process) else ("dead", "-")
    return component.name, state, str(process.pid), rss, component.log
