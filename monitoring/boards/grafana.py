"""The dashboards as Grafana reads them. The only file that imports Grafana's SDK."""

import json
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shown
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from monitoring.boards.row import LOWEST, Board, Kind, Mark, Panel, Tone, Unit, Variable

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "graphpod"
ALL = ".*"
"""The value of All: series without the label count, too."""
HIDDEN = {"Time": True, "Value": True, "__name__": True}
"""Columns that a table of labels leaves out."""
ZERO = model.MatcherConfig(id_val="byValue", options={"reducer": "allIsZero", "op": "gte", "value": 0})
"""Series that are 0 throughout."""

_COLOURED_BY_VALUE = (Kind.Number, Kind.Bars)
_OF_TIME = (Kind.Lines, Kind.Stacked)

Built = Any
"""A builder of the SDK: its panels have no common type but a protocol of one method."""


def render(board: Board) -> str:
    """The dashboard's JSON, ending with a newline. Its panels have the same ids each time."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(f"graphpod-{board.name}")
        .description(board.description)
        .tags([TAG])
        .readonly()
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(dashboard.DashboardLink("graphpod").type(model.DashboardLinkType.DASHBOARDS).tags([TAG]).keep_time(True))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for variable in board.variables:
        made.with_variable(_variable(variable))
    for mark in board.marks:
        made.annotation(_Marks(mark))
    number = 0
    for section in board.sections:
        number += 1
        made.with_row(dashboard.Row(section.title).id(number))
        for panel in section.panels:
            number += 1
            made.with_panel(_panel(panel).id(number))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


class _Marks(model.AnnotationQuery):
    """An annotation of Prometheus whose values are times. The SDK does not know its fields; it is its own builder."""

    def __init__(self, mark: Mark) -> None:
        super().__init__(mark.name, SOURCE, icon_color=Tone.Plain.value, expr=f"1000 * {mark.expr}")
        self.title = mark.legend

    def build(self) -> model.AnnotationQuery:
        return self

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "useValueForTime": True, "titleFormat": self.title, "step": "30s"}


def _variable(variable: Variable) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.name)
        .datasource(SOURCE)
        .query(f"label_values({variable.where})")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(ALL)
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )


def _panel(panel: Panel) -> Built:
    made = _KINDS[panel.kind]()
    made.title(panel.title).description(panel.description).datasource(SOURCE)
    made.unit(panel.unit.value).span(panel.width).height(panel.height)
    made.no_value(panel.why_empty)
    if panel.unit is Unit.Count:
        made.decimals(0)
    if panel.kind in _COLOURED_BY_VALUE or panel.levels:
        made.thresholds(_thresholds(panel))
    if panel.levels:
        dashed = common.GraphThresholdsStyleConfig().mode(shown.GraphThresholdsStyleMode.DASHED)
        made.thresholds_style(dashed).axis_soft_max(panel.levels[-1].value)
    if panel.stepped:
        made.line_interpolation(shown.LineInterpolation.STEP_AFTER)
    mode = model.FieldColorModeId.SHADES if panel.kind in _OF_TIME else model.FieldColorModeId.FIXED
    for pattern, tone in reversed(panel.tones):  # of two overrides the last counts
        colour = model.DynamicConfigValue(id_val="color", value={"mode": mode, "fixedColor": tone.value})
        made.override_by_regexp(f"/^(?:{pattern})$/", [colour])
    if panel.kind in _OF_TIME and not panel.zeros_count:
        out = model.DynamicConfigValue("custom.hideFrom", {"legend": True, "tooltip": True, "viz": False})
        made.with_override(ZERO, [out])
    if panel.words:
        words = {
            f"{word.value:g}": model.ValueMappingResult(text=word.text, color=word.tone.value, index=place)
            for place, word in enumerate(panel.words)
        }
        made.mappings([model.ValueMap(options=words)])
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        made.with_target(_target(panel, query.expr, query.legend, letter))
        if query.dashed:
            line = model.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [10, 10]})
            colour = model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": Tone.Line.value})
            made.override_by_query(letter, [line, colour])
    return made


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    """All of them: without any Grafana paints what is above 80 red."""
    named = panel.steps or tuple((level.value, Tone.Line) for level in panel.levels)
    steps = named if named and named[0][0] == LOWEST else ((LOWEST, Tone.Plain), *named)
    made = [model.Threshold(None if start == LOWEST else start, tone.value) for start, tone in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(made)


def _target(panel: Panel, expr: str, legend: str, letter: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(expr).ref_id(letter).datasource(SOURCE)
    if legend:
        target.legend_format(legend)
    if panel.kind is Kind.Table:
        target.format(PromQueryFormat.TABLE)
    return target.instant() if panel.instant else target.range()


def _lines() -> Built:
    legend = (
        common.VizLegendOptions().display_mode(shown.LegendDisplayMode.LIST).placement(shown.LegendPlacement.BOTTOM)
    )
    tooltip = common.VizTooltipOptions().mode(shown.TooltipDisplayMode.MULTI).sort(shown.SortOrder.DESCENDING)
    made = timeseries.Panel().legend(legend.calcs(["mean", "max"]).show_legend(True)).tooltip(tooltip)
    return made.axis_soft_min(0).show_points(shown.VisibilityMode.AUTO).span_nulls(False)


def _stacked() -> Built:
    return _lines().fill_opacity(40).stacking(common.StackingConfig().mode(shown.StackingMode.NORMAL))


def _latest() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _number() -> Built:
    return stat.Panel().reduce_options(_latest()).graph_mode(shown.BigValueGraphMode.NONE)


def _bars() -> Built:
    return (
        bargauge.Panel()
        .reduce_options(_latest())
        .orientation(shown.VizOrientation.HORIZONTAL)
        .display_mode(shown.BarGaugeDisplayMode.BASIC)
    )


def _table() -> Built:
    hide = model.DataTransformerConfig(id_val="organize", options={"excludeByName": HIDDEN})
    return table.Panel().with_transformation(hide)


_KINDS = {
    Kind.Lines: _lines,
    Kind.Stacked: _stacked,
    Kind.Number: _number,
    Kind.Bars: _bars,
    Kind.Table: _table,
    Kind.Timeline: lambda: statetimeline.Panel().show_value(shown.VisibilityMode.AUTO),
}
