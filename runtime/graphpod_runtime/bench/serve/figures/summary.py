"""Records of one load as figures."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil

import msgspec

from graphpod_runtime.bench.serve.figures.record import Outcome, Record
from graphpod_runtime.bench.serve.figures.slo import Slo
from graphpod_runtime.bench.serve.figures.spread import Spread, spread

BINS = 60
"""Intervals of a timeline."""


class Struct(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A part of the JSON. Times are seconds."""


class Failure(Struct, frozen=True):
    """One kind of error: how often, and what the first of them said."""

    kind: str
    count: int
    example: str


class Goodput(Struct, frozen=True):
    """Requests within the objective: a second, and as a share of those that completed or failed."""

    slo: Slo
    requests_per_second: float
    share: float


class Timeline(Struct, frozen=True):
    """The load in intervals of `step` seconds: pieces of answers a second, and requests in flight at each start."""

    step: float
    pieces_per_second: tuple[float, ...]
    in_flight: tuple[int, ...]


class Summary(Struct, frozen=True):
    """Latencies are of requests that did not fail; TPOT and E2E of those that completed. Rates are over `seconds`, from
    the first request sent to the last end. A client that leaves gets no usage: its request counts with the pieces that
    came, and no input.
    """

    completed: int
    cancelled: int
    failed: int
    failures: tuple[Failure, ...]
    short: int
    """Completed with fewer tokens than asked for: the server stopped by itself."""
    seconds: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    """Of the input, as far as the server reports them."""
    without_usage: int
    """Completed requests whose server sent no usage: their output is counted by pieces, their input not at all."""
    pieces: int
    requests_per_second: float
    input_tokens_per_second: float
    output_tokens_per_second: float
    ttft: Spread | None
    itl: Spread | None
    tpot: Spread | None
    e2e: Spread | None
    turn_ttft: tuple[Spread | None, ...]
    """By turn of a conversation; empty where there is one."""
    late: Spread | None
    """How late the driver sent what a schedule wanted; None in a closed loop."""
    goodput: Goodput | None
    timeline: Timeline

    @property
    def requests(self) -> int:
        """All that ended."""
        return self.completed + self.cancelled + self.failed


def summary(records: Sequence[Record], slo: Slo | None = None, *, open_loop: bool = False) -> Summary:
    """Of all records of one load, in any order."""
    began = min((record.sent for record in records), default=0.0)
    seconds = max((record.end for record in records), default=0.0) - began
    completed = [record for record in records if record.outcome is Outcome.Completed]
    failed = [record for record in records if record.outcome is Outcome.Failed]
    served = [record for record in records if record.outcome is not Outcome.Failed]
    inputs = sum(record.input_tokens or 0 for record in records)
    outputs = sum(record.tokens for record in records)
    turns = 1 + max((record.turn for record in records), default=0)
    return Summary(
        completed=len(completed),
        cancelled=len(served) - len(completed),
        failed=len(failed),
        failures=_failures(failed),
        short=sum(record.tokens < record.asked for record in completed),
        seconds=seconds,
        input_tokens=inputs,
        output_tokens=outputs,
        cached_tokens=sum(record.cached_tokens or 0 for record in records),
        without_usage=sum(record.output_tokens is None for record in completed),
        pieces=sum(len(record.stamps) for record in records),
        requests_per_second=_rate(len(completed), seconds),
        input_tokens_per_second=_rate(inputs, seconds),
        output_tokens_per_second=_rate(outputs, seconds),
        ttft=_spread(record.ttft for record in served),
        itl=spread(gap for record in served for gap in record.gaps),
        tpot=_spread(record.tpot for record in completed),
        e2e=spread(record.e2e for record in completed),
        turn_ttft=tuple(_spread(one.ttft for one in served if one.turn == turn) for turn in range(turns))
        if turns > 1
        else (),
        late=spread(record.late for record in records if record.turn == 0) if open_loop else None,
        goodput=None if slo is None else _goodput(slo, completed, len(failed), seconds),
        timeline=_timeline(records, began, seconds),
    )


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def _spread(values: Iterable[float | None]) -> Spread | None:
    return spread(value for value in values if value is not None)


def _failures(failed: Sequence[Record]) -> tuple[Failure, ...]:
    counts = Counter(record.error for record in failed)
    first = {record.error: record.message for record in sorted(failed, key=lambda one: one.sent, reverse=True)}
    return tuple(Failure(kind, count, first[kind]) for kind, count in counts.most_common())


def _goodput(slo: Slo, completed: Sequence[Record], failed: int, seconds: float) -> Goodput:
    good = sum(slo.holds(record.ttft, record.tpot, record.e2e) for record in completed)
    judged = len(completed) + failed
    return Goodput(slo, _rate(good, seconds), good / judged if judged else 0.0)


def _timeline(records: Sequence[Record], began: float, seconds: float) -> Timeline:
    step = seconds / BINS or 1.0
    pieces, change = [0] * BINS, [0] * (BINS + 1)
    for record in records:
        for stamp in record.stamps:
            pieces[min(BINS - 1, int((stamp - began) / step))] += 1
        # In flight at the start of every interval between sending and end.
        change[min(BINS, ceil((record.sent - began) / step))] += 1
        change[min(BINS, ceil((record.end - began) / step))] -= 1
    in_flight, open_now = [], 0
    for at in range(BINS):
        open_now += change[at]
        in_flight.append(open_now)
    return Timeline(step, tuple(count / step for count in pieces), tuple(in_flight))
