"""What the pods of a service do: rates from two scrapes, as Prometheus would compute them. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphpod_operator.terminal.values.scrape import (
    ACCEPTED,
    FALLBACKS,
    KV,
    PROPOSED,
    REPLAYS,
    RUNNING,
    TOKENS,
    TTFT_BUCKETS,
    WAITING,
    Scrape,
    Series,
)
from graphpod_policy import Phase
from graphpod_policy.enums import FallbackReason

QUANTILE = 0.95
"""Of the time to first token."""
OTHER = "other"
"""In place of a fallback reason that this version does not know."""
PADDING = "padding"


@dataclass(frozen=True, slots=True)
class Load:
    """Of the pods of one service together. Rates are per second; None: not known."""

    running: float | None
    waiting: float | None
    kv: float | None
    """KV pages in use over all pages, of the fullest pod."""
    replays: Mapping[str, float] | None
    """By phase."""
    fallbacks: Mapping[str, float] | None
    """By reason, without reasons of rate 0."""
    padding: float | None
    """Share of the replayed rows that were padding."""
    ttft: float | None
    """Seconds to the first token, of 95 % of the requests at most."""
    drafts: float | None
    """Share of the verified draft tokens that were right; None while no pass verifies drafts."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for `-o json`."""
        return {
            "replaysPerSecond": self.replays,
            "fallbacksPerSecond": self.fallbacks,
            "paddingRatio": self.padding,
            "waiting": self.waiting,
            "running": self.running,
            "kvUsageRatio": self.kv,
            "ttftP95Seconds": self.ttft,
            "draftsAcceptedRatio": self.drafts,
        }


def load(pairs: Sequence[tuple[Scrape | None, Scrape]]) -> Load | None:
    """Of pods, each with its earlier and its latest scrape; pods without an earlier one count with their gauges. None
    without pods.
    """
    if not pairs:
        return None
    gauges = [now.gauges for _, now in pairs]
    increases = [found for before, now in pairs if before is not None and (found := rates(before, now)) is not None]
    total: dict[Series, float] | None = None
    for one in increases:
        total = total or {}
        for series, rate in one.items():
            total[series] = total.get(series, 0.0) + rate
    return of_rates(
        total,
        running=_over(sum, gauges, RUNNING),
        waiting=_over(sum, gauges, WAITING),
        kv=_over(max, gauges, KV),
    )


def _over(total: Callable[[list[float]], float], gauges: Iterable[Mapping[str, float]], name: str) -> float | None:
    """Over the pods that have the gauge."""
    found = [one[name] for one in gauges if name in one]
    return total(found) if found else None


def rates(before: Scrape, now: Scrape) -> dict[Series, float] | None:
    """Increase per second of each counter. One that is less than before was reset by a new engine, and counts from 0.
    None where no time has passed.
    """
    seconds = now.at - before.at
    if seconds <= 0:
        return None
    return {
        series: (value - earlier if (earlier := before.counters.get(series, 0.0)) <= value else value) / seconds
        for series, value in now.counters.items()
    }


def of_rates(
    total: Mapping[Series, float] | None, running: float | None, waiting: float | None, kv: float | None
) -> Load:
    """From the rates of counters and from gauges, wherever they come from."""
    if total is None:
        return Load(running, waiting, kv, None, None, None, None, None)
    tokens = _by_label(total, TOKENS)
    proposed, accepted = (sum(_by_label(total, name).values()) for name in (PROPOSED, ACCEPTED))
    rows = sum(tokens.values())
    return Load(
        running=running,
        waiting=waiting,
        kv=kv,
        replays={phase.value: _by_label(total, REPLAYS).get(phase.value, 0.0) for phase in Phase},
        fallbacks=_by_reason(_by_label(total, FALLBACKS)),
        padding=tokens.get(PADDING, 0.0) / rows if rows > 0 else None,
        ttft=quantile(QUANTILE, _buckets(_by_label(total, TTFT_BUCKETS))),
        drafts=min(1.0, accepted / proposed) if proposed > 0 else None,
    )


def _by_label(total: Mapping[Series, float], name: str) -> dict[str, float]:
    return {label: rate for (series, label), rate in total.items() if series == name}


def _by_reason(rates: Mapping[str, float]) -> dict[str, float]:
    known = set(FallbackReason)
    found: dict[str, float] = {}
    for reason, rate in rates.items():
        if rate > 0:
            word = reason if reason in known else OTHER
            found[word] = found.get(word, 0.0) + rate
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _buckets(rates: Mapping[str, float]) -> list[tuple[float, float]]:
    """Upper bound and rate of each bucket, in order; empty where a bound is no number."""
    try:
        return sorted((float(bound), rate) for bound, rate in rates.items())
    except ValueError:
        return []


def quantile(share: float, buckets: Iterable[tuple[float, float]]) -> float | None:
    """Prometheus' histogram_quantile: linear within a bucket; of the last one, its lower bound. None without requests
    or where the buckets are none of a histogram.
    """
    rows = list(buckets)
    if not rows or not math.isinf(rows[-1][0]) or rows[-1][1] <= 0:
        return None
    wanted, lower, below = share * rows[-1][1], 0.0, 0.0
    for bound, rate in rows:
        if rate >= wanted:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (wanted - below) / (rate - below) if rate > below else bound
        lower, below = bound, max(below, rate)
    return None
