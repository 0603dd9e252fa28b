"""docs/reference/scale.md from the results: `python -m benchmarks.operator_scale.page` writes it."""

from pathlib import Path

from benchmarks.operator_scale import report
from benchmarks.operator_scale.report import ROWS, Found
from graphpod_operator.markdown import table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "scale.md"

HEAD = """# The operator with many services: what was measured

What each figure is: [benchmarks](../benchmarks.md#the-operator-with-many-services-make-bench-operator). Every figure
and the load before each run stand in [operator_scale.json](../../benchmarks/results/operator_scale.json).

![services over time](../../benchmarks/results/operator_scale.png)

"""


def page() -> str:
    """The page's text."""
    founds = report.load(ROOT / report.RESULTS)
    parts = [HEAD, *map(_part, founds)]
    if (growth := report.growth(founds)) is not None:
        parts.append(f"Five times as many services take {growth:.2f} times as long (promised: {report.GROWTH}).\n")
    return "\n".join(parts).rstrip() + "\n"


def _part(found: Found) -> str:
    loads = ", ".join(f"{load:g}" for load in found.loads)
    flags = ", ".join(f"`{flag}`" for flag in found.cluster)
    made = f"`{found.command}`, {found.date}, {found.machine}, load before each {loads}; the cluster with {flags}."
    rows = [
        (row.what, f"{mean:.1f} {row.unit}", report.spread(found, row), report.promised(found, row))
        for row in ROWS
        if (mean := found.mean(row)) is not None
    ]
    last = (found.runs or found.applied)[-1]
    spent = ", ".join(f"{part} {seconds:.0f}" for part, seconds in last.cpu.items())
    text = f"## {found.services} services, {report.counted(found)}\n\n{made}\n\n"
    text += table(("figure", "mean; of writes the most", "range", "promised"), rows)
    until = "last Ready" if found.runs else "last child"
    text += f"\nCPU seconds until the {until}, of the last run: {spent}.\n"
    if found.floor is not None:
        below = ", ".join(f"{part} {seconds:.0f}" for part, seconds in found.floor.cpu.items())
        text += (
            f"\n**The floor**: a client that reads, watches and reports nothing has the same objects written after "
            f"{found.floor.fill_seconds:.1f} s on this machine while controllers run beside; the operator takes "
            f"{report.times_floor(found)}. CPU seconds of the cluster's own by then: {below}.\n"
        )
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"written to {PAGE.relative_to(ROOT)}")
