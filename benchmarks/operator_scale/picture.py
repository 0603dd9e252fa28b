"""Objects over time: what the line a second said, drawn."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.operator_scale.measure import Run
from benchmarks.operator_scale.report import Found

CHILDREN_EACH = 5
INK = {"created": "#8a8f98", "with all children": "#2a6fdb", "Ready": "#1a9850"}


def draw(founds: Sequence[Found], file: Path) -> None:
    """One panel for each number of services: the last run of it. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(founds), figsize=(6.5 * len(founds), 3.8), squeeze=False)
    for panel, found in zip(panels[0], founds, strict=True):
        run = found.runs[-1]
        for what, line in _lines(run).items():
            panel.plot([moment.at for moment in run.moments], line, label=what, color=INK[what], linewidth=2)
        panel.set_title(f"{found.services} services, {found.date}, load before {found.loads[-1]}", fontsize=10)
        panel.set_xlabel("seconds since the first create")
        panel.set_ylabel("services")
        panel.set_xlim(left=0)
        panel.set_ylim(bottom=0)
        panel.spines[["top", "right"]].set_visible(False)
        memory = panel.twinx()
        memory.plot([m.at for m in run.moments], [m.rss / 1e6 for m in run.moments], color="#d95f02", linestyle=":")
        memory.set_ylabel("operator's RSS, MB", color="#d95f02")
        memory.set_ylim(bottom=0)
        memory.spines[["top"]].set_visible(False)
        panel.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(file, dpi=130)
    pyplot.close(figure)


def _lines(run: Run) -> dict[str, list[float]]:
    return {
        "created": [moment.created for moment in run.moments],
        "with all children": [moment.children / CHILDREN_EACH for moment in run.moments],
        "Ready": [moment.ready for moment in run.moments],
    }
