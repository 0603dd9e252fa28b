"""Alerts about graphs and their capture."""

from tests.monitoring.cases.case import GRAPH, OF_POD, OF_SERVICE, OTHER_POD, POD, Case, Fired


def decode(series: str, more: str = GRAPH) -> str:
    return f'{series}{{{POD},phase="decode",{more}}}'


def policy(pod: str, phase: str, planned: str, effective: str) -> str:
    words = f'requested="Auto",planned="{planned}",effective="{effective}",backend="CudaGraph"'
    return f'graphpod_graph_policy_info{{{pod},phase="{phase}",{words}}}'


def passes(replayed: int, eager: int, effective: str = "Full") -> dict[str, str]:
    """Decode passes a minute."""
    return {
        decode("graphpod_graph_replays_total"): f"0+{replayed}x40",
        decode("graphpod_forward_passes_total", 'policy="Full"'): f"0+{replayed}x40",
        decode("graphpod_forward_passes_total", 'policy="Disabled"'): f"0+{eager}x40",
        policy(POD, "decode", effective, effective): "1x40",
    }


def fallbacks(reason: str, values: str, phase: str = "prefill") -> dict[str, str]:
    return {f'graphpod_graph_fallbacks_total{{{POD},phase="{phase}",reason="{reason}",backend="CudaGraph"}}': values}


def failures(values: str) -> dict[str, str]:
    labels = f'{POD},phase="decode",backend="CudaGraph",reason="CaptureOutOfMemory"'
    return {f"graphpod_graph_capture_failures_total{{{labels}}}": values}


def rows(real: int, padding: int) -> dict[str, str]:
    return {
        decode("graphpod_graph_tokens_total", f'kind="{kind}",backend="CudaGraph"'): f"0+{count}x120"
        for kind, count in (("real", real), ("padding", padding))
    }


def start(state: str, progress: str) -> dict[str, str]:
    states = ("Loading", "Capturing", "SelfChecking", "Ready", "Failed")
    found = {f'graphpod_warmup_state{{{POD},state="{one}"}}': f"{int(one == state)}x60" for one in states}
    return {**found, f"graphpod_warmup_progress_ratio{{{POD}}}": progress}


def recaptures(values: str) -> dict[str, str]:
    return {decode("graphpod_graph_recaptures_total", 'backend="CudaGraph"'): values}


def checks(failed: int) -> dict[str, str]:
    counts = {"passed": 26 - failed, "failed": failed}
    return {
        decode("graphpod_graph_selfchecks_total", f'{GRAPH},result="{result}"'): f"{count}x30"
        for result, count in counts.items()
    }


# fmt: off
GRAPHS = (
    Case(
        "GraphpodReplayRatioLow", "a fifth of the passes is eager", passes(80, 20), 30,
        Fired({**OF_SERVICE, "phase": "decode"}, "80% of the decode passes of team/demo run on a graph."),
    ),
    Case("GraphpodReplayRatioLow", "one pass of twenty is eager", passes(95, 5), 30),
    Case("GraphpodReplayRatioLow", "the service has no graphs", passes(0, 100, "Disabled"), 30),
    Case(
        "GraphpodFallbacksUnexpected", "a planned size has no graph", fallbacks("NotCaptured", "0+1x40"), 30,
        Fired(
            {**OF_SERVICE, "phase": "prefill", "reason": "NotCaptured"},
            "prefill passes of team/demo run eagerly: NotCaptured.",
        ),
    ),
    Case(
        "GraphpodFallbacksUnexpected", "a reason of the load, and an old count",
        {**fallbacks("SizeAboveLadder", "0+1x40"), **fallbacks("NotCaptured", "7x40")}, 30,
    ),
    Case(
        "GraphpodFallbacksUnexpected", "a head reads what it does not draft for",
        fallbacks("NotCaptured", "0+1x40", "draft"), 30,
    ),
    Case(
        "GraphpodCaptureFailing", "the counter rises", failures("0 0 1x40"), 10,
        Fired(
            {**OF_POD, "phase": "decode", "reason": "CaptureOutOfMemory"},
            "Captures of decode fail in pod team/demo-1: CaptureOutOfMemory.",
        ),
    ),
    Case(
        "GraphpodCaptureFailing", "it failed before the first scrape", failures("1x40"), 5,
        Fired(
            {**OF_POD, "phase": "decode", "reason": "CaptureOutOfMemory"},
            "Captures of decode fail in pod team/demo-1: CaptureOutOfMemory.",
        ),
    ),
    Case("GraphpodCaptureFailing", "it failed long ago", failures("1x40"), 35),
    Case(
        "GraphpodPolicyDegraded", "one pod of two is weaker than planned",
        {
            policy(POD, "decode", "Full", "Breakable"): "1x60",
            policy(OTHER_POD, "decode", "Full", "Full"): "1x60",
            policy(POD, "prefill", "Breakable", "Breakable"): "1x60",
        }, 45,
        Fired(
            {**OF_POD, "phase": "decode", "planned": "Full", "effective": "Breakable"},
            "Pod team/demo-1 runs decode as Breakable, planned was Full.",
        ),
    ),
    Case("GraphpodPolicyDegraded", "as planned", {policy(POD, "decode", "Full", "Full"): "1x60"}, 45),
    Case(
        "GraphpodPaddingWasteHigh", "more padding than rows", rows(40, 60), 90,
        Fired({**OF_SERVICE, "phase": "decode"}, "60% of the decode rows of team/demo are padding."),
    ),
    Case("GraphpodPaddingWasteHigh", "less", rows(70, 30), 90),
    Case(
        "GraphpodRecapture", "after Ready", recaptures("0 0 1x20"), 10,
        Fired({**OF_POD, "phase": "decode"}, "Pod team/demo-1 captured a decode graph after it was Ready."),
    ),
    Case("GraphpodRecapture", "never", recaptures("0x20"), 10),
    Case(
        "GraphpodSelfCheckFailed", "two of 26", checks(2), 10,
        Fired(
            {**OF_POD, "phase": "decode", "policy": "Full"},
            "2 Full graphs of decode in pod team/demo-1 differ from the code they hold.",
        ),
    ),
    Case("GraphpodSelfCheckFailed", "none", checks(0), 10),
    Case(
        "GraphpodWarmupStuck", "loading and nothing moves", start("Loading", "0x60"), 40,
        Fired(OF_POD, "Pod team/demo-1 starts without progress for 20 minutes."),
    ),
    Case("GraphpodWarmupStuck", "captures go on", start("Capturing", "0+0.01x60"), 40),
    Case("GraphpodWarmupStuck", "ready for long", start("Ready", "1x60"), 40),
)
# fmt: on
