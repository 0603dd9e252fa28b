"""Objectives of a service and the rate at which their budgets are spent.

An objective allows a small share of bad events. A burn rate of 1 spends exactly that share over the objective's period.
Alerts look at two windows: the long one shows that it matters, the short one that it still goes on (Google's SRE
workbook, "Alerting on SLOs"). A service's own bounds come from `spec.slo`, through the operator's series.
"""

from collections.abc import Callable
from dataclasses import dataclass

from monitoring.rules.commands import WIDE, service_metrics
from monitoring.rules.row import SERVICE, Alert, Recording, Severity, by

WINDOWS = ("5m", "30m", "1h", "6h", "3d")
TTFT_BOUND, ITL_BOUND = "1.0", "0.05"
"""Seconds, for a service without `spec.slo`; each is a bound of its histogram, as Prometheus writes it."""
PROMISED = "service:graphpod_objective:seconds"
"""The objectives of `spec.slo`, with the label `le` of the bucket that holds what is good."""


@dataclass(frozen=True, slots=True)
class Objective:
    """`bad` is the recorded ratio's name without its window. `share` of the events may be bad."""

    word: str
    bad: str
    share: float
    promise: str
    ratio: str
    """PromQL of the bad share, with WINDOW."""
    pattern: str
    """Of the series that show it."""
    step: str


def within(objective: str, bucket: Callable[[str], str], bound: str) -> str:
    """Rate of the observations within each service's own objective, or within `bound` if it has none.

    `bucket` gives the rates of the histogram's buckets, with a further matcher. While an objective changes there are
    two for some minutes: the larger one counts.
    """
    default = f'le="{bound}"'
    return (
        f"(\n  {by(SERVICE, 'max')} (\n    {by((*SERVICE, 'le'))} ({bucket('')})\n"
        f'    and on ({", ".join((*SERVICE, "le"))}) {PROMISED}{{objective="{objective}"}}\n  )\n'
        f"  or\n  {by(SERVICE)} ({bucket(default)})\n)"
    )


def _slower(objective: str, histogram: str, bound: str) -> str:
    """The share of observations above the objective."""
    good = within(objective, lambda which: f"rate({histogram}_bucket{{{which}}}[WINDOW])", bound)
    return f"1 -\n{good}\n/\n{by(SERVICE)} (rate({histogram}_count[WINDOW]))"


OBJECTIVES = (
    Objective(
        "TTFT",
        "service:graphpod_ttft_slow:ratio_rate",
        0.01,
        "99 % of the first tokens come within spec.slo.ttft, by default 1 s",
        _slower("ttft", "graphpod_time_to_first_token_seconds", TTFT_BOUND),
        "^graphpod_(time_to_first_token_seconds|requests_waiting)",
        "If requests wait, raise spec.replicas. Otherwise raise spec.engine.prefillBudget, which makes the gaps "
        "between "
        "tokens longer.",
    ),
    Objective(
        "ITL",
        "service:graphpod_itl_slow:ratio_rate",
        0.01,
        "99 % of the gaps between tokens are at most spec.slo.itl, by default 50 ms",
        _slower("itl", "graphpod_inter_token_latency_seconds", ITL_BOUND),
        "^graphpod_(inter_token_latency_seconds|graph_fallbacks_total.* [1-9])",
        "If fallbacks are counted, see GraphpodReplayRatioLow. Otherwise lower spec.engine.prefillBudget, then "
        "spec.engine.maxBatch.",
    ),
    Objective(
        "Error",
        "service:graphpod_request_errors:ratio_rate",
        0.001,
        "99.9 % of the requests get an answer",
        f'{by(SERVICE)} (rate(graphpod_requests_total{{finish_reason=~"error|rejected"}}[WINDOW]))\n'
        f"/\n{by(SERVICE)} (rate(graphpod_requests_total[WINDOW]))",
        "^graphpod_requests_total",
        "If finish_reason is rejected, raise spec.replicas. If it is error, read the pod's log.",
    ),
)

_RECORDED = Recording(
    PROMISED,
    f"{by((*SERVICE, 'objective', 'le'), 'max')} (\n  label_replace(\n"
    '    last_over_time(graphpod_operator_objective_seconds[10m]), "le", "$1", "bound", "(.*)"\n  )\n)',
    (*SERVICE, "objective", "le"),
    "Objectives of spec.slo. A restart of the operator leaves no gap.",
)
RECORDINGS = (
    _RECORDED,
    *(
        Recording(
            f"{one.bad}{window}",
            one.ratio.replace("WINDOW", window),
            SERVICE,
            f"Share of bad events over {window}; the objective: {one.promise}.",
        )
        for one in OBJECTIVES
        for window in WINDOWS
    ),
)


def _over(one: Objective, factor: float, *windows: str) -> str:
    limit = f"{factor * one.share:.12g}"
    return "\n  and\n".join(f"  {one.bad}{window} > {limit}" for window in windows)


def _alerts(one: Objective) -> tuple[Alert, Alert]:
    whose = "{{ $labels.namespace }}/{{ $labels.inferenceservice }}"
    commands = (WIDE, *service_metrics(one.pattern))
    fast = Alert(
        f"Graphpod{one.word}BudgetBurn",
        Severity.Critical,
        "2m",
        f"(\n{_over(one, 14.4, '1h', '5m')}\n)\nor\n(\n{_over(one, 6, '6h', '30m')}\n)",
        SERVICE,
        f"{whose} spends its {one.word} budget fast: {{{{ $value | humanizePercentage }}}} of the events are bad.",
        f"The objective is that {one.promise}. At the rate of the last hours the budget of 30 days is gone in 2 "
        f"to 5 days.",
        commands,
        one.step,
    )
    slow = Alert(
        f"Graphpod{one.word}BudgetBurnSlow",
        Severity.Warning,
        "1h",
        f"(\n{_over(one, 1, '3d', '6h')}\n)",
        SERVICE,
        f"{whose} spends its {one.word} budget: {{{{ $value | humanizePercentage }}}} of the events are bad.",
        f"The objective is that {one.promise}. It was missed over the last three days, and over the last 6 hours.",
        commands,
        one.step,
    )
    return fast, slow


ALERTS = tuple(alert for one in OBJECTIVES for alert in _alerts(one))
