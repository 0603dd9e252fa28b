"""docs/reference/scale.md from the results: `python -m benchmarks.operator_scale.page` writes it."""

import json
from pathlib import Path
from typing import Any

from benchmarks.operator_scale import growth, report
from benchmarks.operator_scale.growth import TIMES, Runs, Server
from benchmarks.operator_scale.report import ROWS, Found
from graphpod_operator.docs.markdown import table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "scale.md"

HEAD = """# The operator with many services: what was measured

What each figure is: [benchmarks](../contributing/bench-operator.md#what-is-measured). Every figure
and the load before each run are in [operator_scale.json](../../benchmarks/results/operator_scale.json).

![services over time](../../benchmarks/results/operator_scale.png)

"""


def page() -> str:
    """The page's text."""
    founds = report.load(ROOT / report.RESULTS)
    parts = [HEAD, *map(_part, founds)]
    if (ROOT / growth.RESULTS).exists():
        parts.append(_growth(json.loads((ROOT / growth.RESULTS).read_text())))
    return "\n".join(parts).rstrip() + "\n"


def _part(found: Found) -> str:
    loads = ", ".join(f"{load:g}" for load in found.loads)
    made = _made(vars(found), loads)
    rows = [
        (row.what, f"{found.mean(row):.1f} {row.unit}", report.spread(found, row), report.promised(found, row))
        for row in ROWS
    ]
    spent = ", ".join(f"{part} {seconds:.0f}" for part, seconds in found.runs[-1].cpu.items())
    text = f"## {found.services} services, {report.counted(found)}\n\n{made}\n\n"
    text += table(("figure", "mean; of writes the most", "range", "promised"), rows)
    text += f"\nCPU seconds until the last Ready, of the last run: {spent}.\n"
    if found.floor is not None:
        below = ", ".join(f"{part} {seconds:.0f}" for part, seconds in found.floor.cpu.items())
        text += (
            f"\n**The floor** is a client that reads, watches and reports nothing. It has written the same objects "
            f"after {found.floor.fill_seconds:.1f} s on this machine while controllers run. The operator takes "
            f"{report.times_floor(found)}. CPU seconds of the cluster itself by then: {below}.\n"
        )
    return text


def _growth(raw: dict[str, Any]) -> str:
    found = growth.load(raw)
    loads = ", ".join(f"{stage.load:g}" for grown in found.values() for run in grown.runs for stage in run.stages)
    return (
        f"## {TIMES} times as many\n\n{_made(raw, loads)} These are the loads before the operator's runs. "
        f"The operator planned and applied, or a bare client wrote, while no "
        f"controller ran. Every figure: [operator_growth.json](../../benchmarks/results/operator_growth.json). "
        f"[Why it is measured with three API servers](../contributing/bench-operator.md#five-times-as-many).\n\n"
    ) + "\n".join(_grown(server, grown) for server, grown in found.items())


def _grown(server: Server, found: Runs) -> str:
    head = ("run", "services", "first create → last child", "operator's CPU", "RSS at its peak", "a bare client")
    rows = [
        (
            str(number),
            str(stage.services),
            f"{stage.applied.applied_seconds:.1f} s",
            f"{stage.applied.applied_cpu:.1f} s",
            f"{stage.applied.applied_peak / 1e6:.0f} MB",
            f"{stage.floor.fill_seconds:.1f} s",
        )
        for number, run in enumerate(found.runs, 1)
        for stage in run.stages
    ]
    flags = " ".join(f"`{flag}`" for flag in server.flags)
    where = f"{server.what[0].upper()}{server.what[1:]}" + (f", by {flags}" if flags else "")
    return f"{where}:\n\n{table(head, rows)}\n{found}.\n"


def _made(raw: dict[str, Any], loads: str) -> str:
    """What it was made with, in a sentence."""
    flags = ", ".join(f"`{flag}`" for flag in raw["cluster"])
    return (
        f"Command: `{raw['command']}`. Date: {raw['date']}. Machine: {raw['machine']}. Load before each run: {loads}. "
        f"Flags of the cluster: {flags}."
    )


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"written to {PAGE.relative_to(ROOT)}")
