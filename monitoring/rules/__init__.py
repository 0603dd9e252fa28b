"""Recording rules and alerts, by group, in the order of the file."""

from monitoring.rules import graphs, objectives, operator, ratios, serving
from monitoring.rules.row import Alert, Group, Recording

GROUPS: tuple[Group, ...] = (
    Group("graphpod-ratios", "Recorded ratios", ratios.RECORDINGS),
    Group("graphpod-graphs", "Graphs and warm-up", graphs.ALERTS),
    Group("graphpod-serving", "Serving", serving.ALERTS),
    Group("graphpod-objectives", "Objectives", (*objectives.RECORDINGS, *objectives.ALERTS)),
    Group("graphpod-operator", "The operator", operator.ALERTS),
)

RECORDINGS: tuple[Recording, ...] = tuple(r for g in GROUPS for r in g.rows if isinstance(r, Recording))
ALERTS: tuple[Alert, ...] = tuple(r for g in GROUPS for r in g.rows if isinstance(r, Alert))
