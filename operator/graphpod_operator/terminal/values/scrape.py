"""One scrape of a pod's /metrics: the few series that the table needs, checked. Pure.

A pod may answer anything. So only lines of the series that are wanted are parsed, of bounded length and number, and a
value that no engine can have makes the whole scrape count for nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

from prometheus_client.parser import text_string_to_metric_families

REPLAYS = "graphpod_graph_replays_total"
FALLBACKS = "graphpod_graph_fallbacks_total"
TOKENS = "graphpod_graph_tokens_total"
TTFT_BUCKETS = "graphpod_time_to_first_token_seconds_bucket"
PROPOSED = "graphpod_speculation_proposed_tokens_total"
ACCEPTED = "graphpod_speculation_accepted_tokens_total"
RUNNING = "graphpod_requests_running"
WAITING = "graphpod_requests_waiting"
KV = "graphpod_kv_cache_usage_ratio"

COUNTERS = MappingProxyType(
    {
        REPLAYS: ("phase",),
        FALLBACKS: ("reason",),
        TOKENS: ("kind",),
        TTFT_BUCKETS: ("le",),
        PROPOSED: ("method",),
        ACCEPTED: ("method",),
    }
)
"""Counters, each with the labels that its sums keep."""
GAUGES = (RUNNING, WAITING, KV)

SCRAPE_BYTES = 1 << 20
"""Of one scrape. An engine's has some 30 KiB."""
SERIES = 2000
"""Series of ours in a scrape. An engine has about 150."""
LINE_BYTES = 1024
LARGEST = 1e15
"""Of a value: an engine that counts a million a second for thirty years."""
ASKED = re.compile(rf"^(?:{'|'.join((*COUNTERS, *GAUGES))})[{{ ].*$", re.MULTILINE)

Series = tuple[str, str]
"""A counter, and the value of the label that its sum keeps."""


class ScrapeInvalid(ValueError):
    """What a pod answered is no scrape of an engine; the message says why."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """The sums of a pod's counters since its engine started, and its gauges, at `at` seconds of a steady clock. A pod
    that still loads has few of either.
    """

    at: float
    counters: dict[Series, float]
    gauges: dict[str, float]

    def total(self, name: str) -> float:
        """A counter's sum over its kept label."""
        return sum(value for (series, _), value in self.counters.items() if series == name)


def scrape(body: bytes, at: float) -> Scrape:
    """A scrape from the body of /metrics. Raises ScrapeInvalid."""
    if len(body) > SCRAPE_BYTES:
        raise ScrapeInvalid(f"/metrics has more than {SCRAPE_BYTES // 1024} KiB")
    counters: dict[Series, float] = {}
    gauges: dict[str, float] = {}
    for name, label, value in _samples(body.decode(errors="replace")):
        if name in COUNTERS:
            counters[name, label] = counters.get((name, label), 0.0) + value
        else:
            gauges[name] = gauges.get(name, 0.0) + value
    if not any(name == TTFT_BUCKETS for name, _ in counters):
        raise ScrapeInvalid("/metrics has no series of a graphpod engine")
    if gauges.get(KV, 0.0) > 1:
        raise ScrapeInvalid(f"/metrics says {KV} {gauges[KV]:g}: more than 1")
    found = Scrape(at, counters, gauges)
    if found.total(ACCEPTED) > found.total(PROPOSED):
        raise ScrapeInvalid("/metrics says that more draft tokens were right than were verified")
    return found


def _samples(text: str) -> Iterator[tuple[str, str, float]]:
    """Name, kept label and value of each series that is wanted. Raises ScrapeInvalid."""
    lines = [found[0] for found, _ in zip(ASKED.finditer(text), range(SERIES + 1), strict=False)]
    if len(lines) > SERIES:
        raise ScrapeInvalid(f"/metrics has more than {SERIES} series of the engine")
    for line in lines:
        if len(line) > LINE_BYTES:
            raise ScrapeInvalid(f"/metrics has a line of {len(line)} characters")
        try:
            ((sample,),) = (family.samples for family in text_string_to_metric_families(line))
            value = float(sample.value)
        except (ValueError, OverflowError, IndexError) as error:
            raise ScrapeInvalid(f"/metrics cannot be read at: {line[:80]}") from error
        if not (math.isfinite(value) and 0 <= value <= LARGEST):
            raise ScrapeInvalid(f"/metrics says {line[:80]}: impossible")
        label = next((sample.labels.get(key, "") for key in COUNTERS.get(sample.name, ())), "")
        yield sample.name, label, value
