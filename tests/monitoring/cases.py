"""What fires each alert, and what comes near and does not. Series and values as promtool writes them."""

from collections.abc import Callable
from dataclasses import dataclass

SERVICE = 'namespace="team",inferenceservice="demo"'
POD = f'{SERVICE},pod="demo-1"'
OTHER_POD = f'{SERVICE},pod="demo-2"'
GRAPH = 'policy="Full",backend="CudaGraph"'
ACTIVE = 'namespace="graphpod-system",pod="one",job="graphpod-operator",instance="10.0.0.1:8080"'
STANDBY = 'namespace="graphpod-system",pod="two",job="graphpod-operator",instance="10.0.0.2:8080"'
FOREIGN = 'namespace="kserve",pod="manager",job="kserve",instance="10.0.0.3:8080"'

OF_SERVICE = {"namespace": "team", "inferenceservice": "demo"}
OF_POD = {**OF_SERVICE, "pod": "demo-1"}
OF_OPERATOR = {"namespace": "graphpod-system", "pod": "one"}


@dataclass(frozen=True)
class Fired:
    """One alert, with its labels besides name and severity, and its summary as people read it."""

    labels: dict[str, str]
    summary: str


@dataclass(frozen=True)
class Case:
    """At minute `at` the alert fires as `fired`, and no other of its name; None: it does not fire."""

    alert: str
    title: str
    series: dict[str, str]
    at: int
    fired: Fired | None = None


def leader(**others: str) -> dict[str, str]:
    """The Lease is held by the first replica."""
    return {
        f'leader_election_master_status{{{ACTIVE},name="graphpod-operator"}}': "1x200",
        f'leader_election_master_status{{{STANDBY},name="graphpod-operator"}}': "0x200",
    }


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


def fallbacks(reason: str, values: str) -> dict[str, str]:
    return {f'graphpod_graph_fallbacks_total{{{POD},phase="prefill",reason="{reason}",backend="CudaGraph"}}': values}


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


def queue(waiting: int, running: int) -> dict[str, str]:
    return {
        f"graphpod_requests_waiting{{{POD}}}": f"{waiting}x30",
        f"graphpod_requests_running{{{POD}}}": f"{running}x30",
    }


def cache(usage: float, preemptions: str) -> dict[str, str]:
    return {
        f"graphpod_kv_cache_usage_ratio{{{POD}}}": f"{usage}x40",
        f"graphpod_preemptions_total{{{POD}}}": preemptions,
    }


def preempted(usage: float, preemptions: int, requests: int) -> dict[str, str]:
    """Preemptions and requests a minute."""
    ended = f'graphpod_requests_total{{{POD},model_name="m",finish_reason="stop"}}'
    return {**cache(usage, f"0+{preemptions}x40"), ended: f"0+{requests}x40"}


def masks(seconds: float) -> dict[str, str]:
    """Seconds a minute that go to token masks."""
    return {f"graphpod_grammar_mask_duration_seconds_sum{{{POD}}}": f"0+{seconds}x60"}


def drafts(proposed: int, accepted: int) -> dict[str, str]:
    """Draft tokens a minute."""
    return {
        f'graphpod_speculation_{word}_tokens_total{{{POD},method="Ngram"}}': f"0+{count}x120"
        for word, count in (("proposed", proposed), ("accepted", accepted))
    }


def spans(exported: int, failed: int, dropped: int) -> dict[str, str]:
    """Spans a minute."""
    counts = {"exported": exported, "failed": failed, "dropped": dropped}
    return {
        f'graphpod_trace_spans_total{{{POD},result="{result}"}}': f"0+{count}x40" for result, count in counts.items()
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

SERVING = (
    Case(
        "GraphpodQueueGrowing", "30 wait for 8", queue(30, 8), 20,
        Fired(OF_SERVICE, "30 requests of team/demo wait."),
    ),
    Case("GraphpodQueueGrowing", "10 wait for 8", queue(10, 8), 20),
    Case(
        "GraphpodKVCacheSaturated", "full, and requests are set back", cache(0.99, "0+1x40"), 30,
        Fired(OF_POD, "The KV cache of pod team/demo-1 is 99% full, and requests are set back."),
    ),
    Case("GraphpodKVCacheSaturated", "full, and no request is set back", cache(0.99, "3x40"), 30),
    Case("GraphpodKVCacheSaturated", "requests were set back, with room now", cache(0.5, "0+1x40"), 30),
    Case(
        "GraphpodPreemptionsHigh", "one preemption for five requests, with room in between", preempted(0.8, 2, 10), 30,
        Fired(OF_POD, "Pod team/demo-1 sets back 20% of its requests."),
    ),
    Case(
        "GraphpodPreemptionsHigh", "preemptions, and no request ends", preempted(0.8, 2, 0), 30,
        Fired(OF_POD, "Pod team/demo-1 sets back +Inf% of its requests."),
    ),
    Case("GraphpodPreemptionsHigh", "one for twenty", preempted(0.99, 1, 20), 30),
    Case("GraphpodPreemptionsHigh", "neither requests nor preemptions", preempted(0.1, 0, 0), 30),
    Case(
        "GraphpodNonfiniteLogits", "one request", {f"graphpod_nonfinite_logits_total{{{POD}}}": "0 0 1x20"}, 10,
        Fired(OF_POD, "The model of pod team/demo-1 produces NaN or infinity."),
    ),
    Case("GraphpodNonfiniteLogits", "long ago", {f"graphpod_nonfinite_logits_total{{{POD}}}": "5x60"}, 40),
    Case(
        "GraphpodMasksSlow", "a quarter of the time", masks(15), 40,
        Fired(OF_POD, "Pod team/demo-1 spends 25% of its time on the token masks of grammars."),
    ),
    Case("GraphpodMasksSlow", "a tenth of it", masks(6), 40),
    Case("GraphpodMasksSlow", "no request has a grammar", masks(0), 40),
    Case(
        "GraphpodDraftsWrong", "one of twenty is right", drafts(100, 5), 100,
        Fired(OF_SERVICE, "5% of the draft tokens of team/demo are right."),
    ),
    Case("GraphpodDraftsWrong", "one of five is right", drafts(100, 20), 100),
    Case("GraphpodDraftsWrong", "no pass verifies drafts", drafts(0, 0), 100),
    Case(
        "GraphpodTracesLost", "the collector is away", spans(0, 10, 0), 30,
        Fired(OF_POD, "Pod team/demo-1 loses 100% of its trace spans."),
    ),
    Case(
        "GraphpodTracesLost", "a quarter is dropped", spans(75, 0, 25), 30,
        Fired(OF_POD, "Pod team/demo-1 loses 25% of its trace spans."),
    ),
    Case("GraphpodTracesLost", "one of twenty fails", spans(95, 5, 0), 30),
    Case("GraphpodTracesLost", "no request is traced", spans(0, 0, 0), 30),
)
# fmt: on


def grown(bad: float, minutes: int, good: float, then: int) -> str:
    """A counter that grows by `bad` a minute, and then by `good`."""
    return f"0+{bad:g}x{minutes}" + (f" {bad * minutes + good:g}+{good:g}x{then}" if then else "")


def slow(histogram: str, bound: str, bad: float, minutes: int, well: int = 0) -> dict[str, str]:
    """1000 observations a minute, so many of them above the bound; then so many minutes without those."""
    return {
        f'{histogram}_bucket{{{POD},model_name="m",le="{bound}"}}': grown(1000 - bad, minutes, 1000, well),
        f'{histogram}_count{{{POD},model_name="m"}}': grown(1000, minutes, 1000, well),
    }


def errors(bad: float, minutes: int, well: int = 0) -> dict[str, str]:
    """1000 requests a minute, so many of them refused; then so many minutes without those."""
    name = f'graphpod_requests_total{{{POD},model_name="m",finish_reason='
    return {
        f'{name}"rejected"}}': grown(bad, minutes, 0, well),
        f'{name}"stop"}}': grown(1000 - bad, minutes, 1000, well),
    }


def promised(objective: str, seconds: float, values: str = "") -> dict[str, str]:
    """`spec.slo` of the service, as the operator exports it."""
    labels = f'{SERVICE},objective="{objective}",bound="{seconds}"'
    return {f"graphpod_operator_objective_seconds{{{labels}}}": values or f"{seconds}x200"}


def buckets(histogram: str, shares: dict[str, float]) -> dict[str, str]:
    """1000 observations a minute, so many of them up to each bound."""
    return {
        f'{histogram}_count{{{POD},model_name="m"}}': "0+1000x200",
        **{f'{histogram}_bucket{{{POD},model_name="m",le="{le}"}}': f"0+{n:g}x200" for le, n in shares.items()},
    }


def ttft(bad: float, minutes: int, well: int = 0) -> dict[str, str]:
    return slow("graphpod_time_to_first_token_seconds", "1.0", bad, minutes, well)


def itl(bad: float, minutes: int, well: int = 0) -> dict[str, str]:
    return slow("graphpod_inter_token_latency_seconds", "0.05", bad, minutes, well)


def burning(
    word: str, series: Callable[..., dict[str, str]], fast: float, moderate: float, little: float
) -> tuple[Case, ...]:
    """Bad events of a thousand: that burn fast, that spend the budget, that stay within it."""

    def said(speed: str, bad: float) -> Fired:
        return Fired(OF_SERVICE, f"team/demo spends its {word} budget{speed}: {bad / 10:g}% of the events are bad.")

    both = (f"Graphpod{word}BudgetBurn", f"Graphpod{word}BudgetBurnSlow")
    return (
        Case(both[0], "much is bad", series(fast, 80), 75, said(" fast", fast)),
        Case(both[0], "a little is bad", series(moderate, 80), 75),
        Case(both[0], "much was bad, and nothing is any more", series(fast, 80, 40), 120),
        Case(both[1], "a little is bad for hours", series(moderate, 200), 180, said("", moderate)),
        Case(both[1], "it stays within the budget", series(little, 200), 180),
    )


TTFT, ITL = "graphpod_time_to_first_token_seconds", "graphpod_inter_token_latency_seconds"


def own(word: str, objective: str, histogram: str, default: float, strict: float, lax: float) -> tuple[Case, ...]:
    """Objectives of `spec.slo` around the default."""
    name = f"Graphpod{word}BudgetBurn"
    fast = f"team/demo spends its {word} budget fast: 20% of the events are bad."
    slow_by_default = buckets(histogram, {f"{strict}": 500, f"{default}": 800, f"{lax}": 1000})
    good_by_default = buckets(histogram, {f"{strict}": 800, f"{default}": 1000, f"{lax}": 1000})
    another = {
        f'graphpod_operator_objective_seconds{{namespace="team",inferenceservice="other",objective="{objective}",'
        f'bound="{lax}"}}': f"{lax}x200"
    }
    return (
        Case(name, "a laxer objective of its own is kept", {**slow_by_default, **promised(objective, lax)}, 75),
        Case(
            name,
            "a stricter objective of its own is missed",
            {**good_by_default, **promised(objective, strict)},
            75,
            Fired(OF_SERVICE, fast),
        ),
        Case(name, "another service has an objective", {**slow_by_default, **another}, 75, Fired(OF_SERVICE, fast)),
        Case(
            name,
            "the operator restarts and the objective stays",
            {**slow_by_default, **promised(objective, lax, f"{lax}x70 _x3 {lax}x100")},
            73,
        ),
        Case(
            name,
            "the objective was made laxer a moment ago",
            {
                **slow_by_default,
                **promised(objective, default, f"{default}x70 stale"),
                **promised(objective, lax, f"_x71 {lax}x100"),
            },
            75,
        ),
        Case(
            name,
            "the service lost its objective an hour ago",
            {**slow_by_default, **promised(objective, lax, f"{lax}x10 stale")},
            75,
            Fired(OF_SERVICE, fast),
        ),
    )


OBJECTIVES = (
    *own("TTFT", "ttft", TTFT, 1.0, 0.5, 5.0),
    *own("ITL", "itl", ITL, 0.05, 0.02, 0.2),
    *burning("TTFT", ttft, 200, 50, 5),
    *burning("ITL", itl, 200, 50, 5),
    *burning("Error", errors, 20, 5, 0.5),
)


def services(labels: str, ready: str, count: int) -> dict[str, str]:
    series = f'graphpod_operator_inferenceservices{{{labels},ready="{ready}",prefill="Breakable",decode="Full"}}'
    return {series: f"{count}x60"}


def reconciles(labels: str, well: int, wrong: int) -> dict[str, str]:
    name = f'controller_runtime_reconcile_total{{{labels},controller="inferenceservice"'
    return {
        f'{name},result="success"}}': f"0+{well}x60",
        f'{name},result="error"}}': f"0+{wrong}x60",
        f'controller_runtime_reconcile_errors_total{{{labels},controller="inferenceservice"}}': f"0+{wrong}x60",
    }


def waiting(labels: str) -> dict[str, str]:
    return {f'leader_election_master_status{{{labels},name="graphpod-operator"}}': "0x30"}


def depth(labels: str, count: int) -> dict[str, str]:
    return {f'workqueue_depth{{{labels},name="inferenceservice"}}': f"{count}x60"}


def longest(seconds: int) -> dict[str, str]:
    return {f'workqueue_longest_running_processor_seconds{{{ACTIVE},name="inferenceservice"}}': f"{seconds}x60"}


def counted(metric: str, values: str) -> dict[str, str]:
    return {f'graphpod_operator_{metric}_total{{{ACTIVE},kind="Deployment"}}': values}


def answers(code: str, count: int) -> dict[str, str]:
    return {f'rest_client_requests_total{{{ACTIVE},code="{code}",method="GET"}}': f"0+{count}x60"}


SUCCESS = f"graphpod_operator_last_success_timestamp_seconds{{{ACTIVE}}}"
SKIPPED = 'graphpod_operator_object_skipped{kind="Pod",namespace="team",name="big",pod="one"}'
OF_KIND = {"namespace": "graphpod-system", "kind": "Deployment"}

# fmt: off
OPERATOR = (
    Case(
        "GraphpodServiceNotReady", "both replicas count the same two",
        {**leader(), **services(ACTIVE, "False", 2), **services(STANDBY, "False", 2), **services(ACTIVE, "True", 5)},
        30,
        Fired({"namespace": "graphpod-system", "ready": "False"}, "2 InferenceServices have Ready=False."),
    ),
    Case("GraphpodServiceNotReady", "all are", {**leader(), **services(ACTIVE, "True", 5)}, 30),
    Case(
        "GraphpodReconcileErrors", "one of five", {**leader(), **reconciles(ACTIVE, 8, 2)}, 40,
        Fired(OF_OPERATOR, "20% of the reconciles of graphpod-system/one fail."),
    ),
    Case(
        "GraphpodReconcileErrors", "those of another controller of that name",
        {**leader(), **reconciles(ACTIVE, 99, 1), **reconciles(FOREIGN, 1, 9)}, 40,
    ),
    Case(
        "GraphpodOperatorStalled", "half an hour", {**leader(), SUCCESS: "0x60", **services(ACTIVE, "True", 3)}, 30,
        Fired(OF_OPERATOR, "The operator graphpod-system/one has reconciled nothing for 30m 0s."),
    ),
    Case("GraphpodOperatorStalled", "there are no services", {**leader(), SUCCESS: "0x60"}, 30),
    Case(
        "GraphpodOperatorStalled", "one a minute",
        {**leader(), SUCCESS: "0+60x60", **services(ACTIVE, "True", 3)}, 30,
    ),
    Case(
        "GraphpodOperatorDown", "other targets are scraped", {'up{job="node"}': "1x30"}, 10,
        Fired({"name": "graphpod-operator"}, "No operator of graphpod is scraped."),
    ),
    Case("GraphpodOperatorDown", "one runs and waits", waiting(STANDBY), 10),
    Case(
        "GraphpodNoLeader", "two wait",
        {**waiting(ACTIVE), **waiting(STANDBY)}, 10,
        Fired({"namespace": "graphpod-system"}, "No operator in graphpod-system holds the Lease."),
    ),
    Case("GraphpodNoLeader", "one leads", leader(), 10),
    Case(
        "GraphpodQueueBacklog", "150 wait", {**leader(), **depth(ACTIVE, 150), **depth(STANDBY, 500)}, 20,
        Fired(OF_OPERATOR, "150 services wait for the operator graphpod-system/one."),
    ),
    Case(
        "GraphpodQueueBacklog", "the queues of a standby and of another controller",
        {**leader(), **depth(ACTIVE, 5), **depth(STANDBY, 500), **depth(FOREIGN, 500)}, 20,
    ),
    Case(
        "GraphpodReconcileStuck", "two minutes", {**leader(), **longest(120)}, 20,
        Fired(OF_OPERATOR, "One reconcile of graphpod-system/one takes 2m 0s."),
    ),
    Case("GraphpodReconcileStuck", "ten seconds", {**leader(), **longest(10)}, 20),
    Case(
        "GraphpodApplyConflicts", "again and again", {**leader(), **counted("apply_conflicts", "0+1x60")}, 50,
        Fired(OF_KIND, "Another writer owns fields of Deployment objects that the operator applies."),
    ),
    Case("GraphpodApplyConflicts", "three, once", {**leader(), **counted("apply_conflicts", "0 0 3x60")}, 50),
    Case(
        "GraphpodDrift", "again and again", {**leader(), **counted("drift_corrections", "0+1x60")}, 50,
        Fired(OF_KIND, "Something changes Deployment objects again and again, and the operator puts them back."),
    ),
    Case("GraphpodDrift", "three, once", {**leader(), **counted("drift_corrections", "0 0 3x60")}, 50),
    Case(
        "GraphpodAPIErrors", "one of ten, of three kinds",
        {**leader(), **answers("200", 90), **answers("500", 4), **answers("429", 4), **answers("<error>", 2)}, 30,
        Fired(OF_OPERATOR, "10% of the requests of graphpod-system/one fail at the API server."),
    ),
    Case("GraphpodAPIErrors", "what is not found", {**leader(), **answers("200", 50), **answers("404", 50)}, 30),
    Case(
        "GraphpodObjectSkipped", "one pod", {SKIPPED: "1x40"}, 25,
        Fired(
            {"kind": "Pod", "namespace": "team", "name": "big"},
            "Pod team/big is too large for the operator to read.",
        ),
    ),
    Case("GraphpodObjectSkipped", "no longer", {SKIPPED: "1x5 _x40"}, 25),
)
# fmt: on

CASES = (*GRAPHS, *SERVING, *OBJECTIVES, *OPERATOR)
