"""Alerts about requests: queues, the KV cache, grammars, drafts, traces."""

from tests.monitoring.cases.case import OF_POD, OF_SERVICE, POD, Case, Fired


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


def accepted(runs: int, tokens: int) -> dict[str, str]:
    """Runs of right drafts a minute, and their tokens together."""
    return {
        f'graphpod_speculation_accepted_length_{word}{{{POD},method="Ngram"}}': f"0+{number}x120"
        for word, number in (("count", runs), ("sum", tokens))
    }


def spans(exported: int, failed: int, dropped: int) -> dict[str, str]:
    """Spans a minute."""
    counts = {"exported": exported, "failed": failed, "dropped": dropped}
    return {
        f'graphpod_trace_spans_total{{{POD},result="{result}"}}': f"0+{count}x40" for result, count in counts.items()
    }


# fmt: off
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
    Case(
        "GraphpodDraftsWrong", "one of twenty of a tree, which are 1.7 of a request in a pass",
        drafts(100, 5) | accepted(3, 5), 100,
    ),
    Case(
        "GraphpodDraftsWrong", "one of twenty of a chain, which are 0.2 of a request in a pass",
        drafts(100, 5) | accepted(25, 5), 100,
        Fired(OF_SERVICE, "5% of the draft tokens of team/demo are right."),
    ),
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
