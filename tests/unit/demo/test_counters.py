"""Reading the engine's exposition, and showing two readings side by side."""

from demo.counters import counters, table

TEXT = """\
# TYPE graphpod_graph_replays_total counter
graphpod_graph_replays_total{phase="prefill",policy="Breakable",backend="Recorder"} 3.0
graphpod_graph_replays_total{phase="decode",policy="Full",backend="Recorder"} 7.0
# TYPE graphpod_graph_fallbacks_total counter
graphpod_graph_fallbacks_total{phase="decode",reason="NotCaptured",backend="Recorder"} 1.0
graphpod_graph_fallbacks_total{phase="decode",reason="WarmingUp",backend="Recorder"} 1.0
# TYPE graphpod_requests_running gauge
graphpod_requests_running 0.0
"""


def test_counters_are_summed_over_everything_but_the_phase() -> None:
    assert counters(TEXT) == {
        ("graphpod_graph_replays_total", "prefill"): 3.0,
        ("graphpod_graph_replays_total", "decode"): 7.0,
        ("graphpod_graph_fallbacks_total", "decode"): 2.0,
    }


def test_the_table_has_a_line_for_each_metric_and_phase_prefill_first() -> None:
    before = {("graphpod_graph_replays_total", "decode"): 7.0}
    lines = table(before, counters(TEXT)).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ['graphpod_graph_replays_total{phase="prefill"}', "0", "3"],
        ['graphpod_graph_replays_total{phase="decode"}', "7", "7"],
        ['graphpod_graph_fallbacks_total{phase="decode"}', "0", "2"],
    ]
