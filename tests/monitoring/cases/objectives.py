"""Alerts about objectives: how fast the budget of bad answers burns."""

from collections.abc import Callable

from tests.monitoring.cases.case import OF_SERVICE, POD, SERVICE, Case, Fired


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
