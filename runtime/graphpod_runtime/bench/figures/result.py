"""What one run of the command found: a value, its JSON, and what follows from it."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from statistics import median

import msgspec

from graphpod_policy import CompileMode, Phase, Policy
from graphpod_runtime.bench.figures import result_file
from graphpod_runtime.bench.figures.floors import Floor, ModelFacts, Rates, decode_floor, prefill_floor
from graphpod_runtime.bench.figures.meter import Samples
from graphpod_runtime.bench.figures.variants import Variant
from graphpod_runtime.bench.figures.workload import Workload

FORMAT = "graphpod bench graphs 1"


class Cache(StrEnum):
    """What a start found of compiled code."""

    Cold = "cold"
    """Nothing: the first start on a new machine."""
    Warm = "warm"
    """What the start before it left."""
    Unused = "unused"
    """Nothing is compiled."""


class Struct(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A part of the JSON."""


class SizeCost(Struct):
    """What the graph of one size took: seconds, and bytes by which pool and driver grew (0 where it reused)."""

    size: int
    seconds: float
    pool_bytes: int
    driver_bytes: int


class Capture(Struct):
    """The graphs of one phase, as the engine reports them."""

    policy: Policy
    """The one that runs, which is weaker than the one asked for where the engine had to degrade."""
    planned: int
    captured: int
    segments: int
    pool_bytes: int
    driver_bytes: int
    seconds: float
    prepare_seconds: float
    """Of `seconds`, what all sizes share: a trace, compiled pieces."""
    warm_seconds: float
    """Of `seconds`, passes before the first capture."""
    self_check: str
    by_size: tuple[SizeCost, ...] = ()


class Start(Struct):
    """One start. `seconds` is from the first moment of its process to Ready, imports included."""

    cache: Cache
    seconds: float
    stages: dict[str, float]
    phases: dict[Phase, Capture]
    attention: str
    capture_clock: dict[str, float]
    """From weights on the device to the last prefill graph, in parts."""
    decisions: tuple[str, ...] = ()
    """What the engine decided for itself, and why."""


class BreakCost(Struct):
    """One pass of a Breakable graph, and of the same code captured as one graph without breaks, attention inside.
    Inputs are in place and attention is planned: seconds are of replays alone.
    """

    phase: Phase
    size: int
    breaks: int
    broken: float
    whole: float

    @property
    def each(self) -> float:
        """Seconds of one break."""
        return (self.broken - self.whole) / self.breaks


class Speed(Struct):
    """One size of one phase. Seconds are of a prefill with its first token (the median), or of a decode step."""

    size: int
    seconds: float
    of_floor: float
    """Floor / seconds: 1 is all that the hardware allows."""
    times_eager: float | None = None
    """Eager's seconds / these; None where eager was not run."""
    tokens_per_second: float | None = None
    """Of decode."""
    wire_seconds: float | None = None
    """The same over the engine's wire, without HTTP."""


class Found(Struct):
    """What the processes of one variant found, raw."""

    variant: Variant
    starts: tuple[Start, ...] = ()
    samples: Samples = Samples()
    wire: Samples = Samples()
    breaks: tuple[BreakCost, ...] = ()
    breaks_left_out: str | None = None
    """Why break costs could not be taken."""
    fallbacks: int = 0
    """Passes that ran eagerly although their phase has graphs."""
    failure: str | None = None


class Row(Struct):
    """One variant."""

    variant: Variant
    starts: tuple[Start, ...]
    prefill: tuple[Speed, ...]
    decode: tuple[Speed, ...]
    breaks: tuple[BreakCost, ...]
    breaks_left_out: str | None
    fallbacks: int
    failure: str | None
    samples: Samples
    wire: Samples

    @property
    def ready(self) -> Start | None:
        """The start whose engine was measured."""
        return self.starts[-1] if self.starts else None

    def effective(self, phase: Phase) -> Policy:
        """What ran."""
        return self.variant.policy(phase) if self.ready is None else self.ready.phases[phase].policy

    def degraded(self, phase: Phase) -> bool:
        """Whether something weaker ran than was asked for."""
        return self.effective(phase) is not self.variant.policy(phase)

    def label(self, phase: Phase) -> str:
        """How `phase` ran, in words."""
        if self.variant.reference:
            return self.variant.name
        return labelled(self.effective(phase), self.variant.compile)

    def speeds(self, phase: Phase) -> tuple[Speed, ...]:
        """Of `phase`, ascending sizes."""
        return self.prefill if phase is Phase.Prefill else self.decode


def labelled(policy: Policy, compile: CompileMode) -> str:
    """A policy and its compile mode, in words."""
    name = "eager" if policy is Policy.Disabled else policy.value
    return name if compile is CompileMode.Nothing else f"{name} + {compile.value.lower()}"


class Machine(Struct):
    """Where it ran."""

    device: str
    driver: str | None
    cpu: str
    cores: int
    threads: int
    """Of torch."""
    memory_bytes: int
    system: str
    versions: dict[str, str]


class Left(Struct):
    """A variant that was asked for and not run."""

    name: str
    why: str


class Result(Struct):
    """All of it. Floors and rows ascend by size."""

    format: str
    command: str
    date: str
    took_seconds: float
    machine: Machine
    model: ModelFacts
    workload: Workload
    rates: Rates
    prefill_floors: tuple[Floor, ...]
    decode_floors: tuple[Floor, ...]
    rows: tuple[Row, ...]
    left_out: tuple[Left, ...] = ()

    def floors(self, phase: Phase) -> tuple[Floor, ...]:
        """Of `phase`, ascending sizes."""
        return self.prefill_floors if phase is Phase.Prefill else self.decode_floors

    def rows_of(self, phase: Phase) -> list[Row]:
        """Rows that show `phase`: measured, as asked, each way of running it once (the first)."""
        shown: dict[str, Row] = {}
        for row in self.rows:
            if row.speeds(phase) and not row.degraded(phase):
                shown.setdefault(row.label(phase), row)
        return list(shown.values())


def result_of(
    command: str,
    date: str,
    took_seconds: float,
    machine: Machine,
    model: ModelFacts,
    workload: Workload,
    rates: Rates,
    found: Iterable[Found],
    left_out: Iterable[Left] = (),
) -> Result:
    """Raw times into speeds, each with its floor and eager."""
    prefill = tuple(prefill_floor(model, rates, tokens) for tokens in workload.prefill_tokens)
    decode = tuple(decode_floor(model, rates, batch, workload.context) for batch in workload.decode_batches)
    found = tuple(found)
    eager_prefill, eager_decode = (
        next((seconds(one.samples, workload) for one in found if _is_eager(one)), {})
        for seconds in (prefill_seconds, step_seconds)
    )
    return Result(
        format=FORMAT,
        command=command,
        date=date,
        took_seconds=took_seconds,
        machine=machine,
        model=model,
        workload=workload,
        rates=rates,
        prefill_floors=prefill,
        decode_floors=decode,
        left_out=tuple(left_out),
        rows=tuple(
            Row(
                variant=one.variant,
                starts=one.starts,
                prefill=_speeds(
                    prefill, prefill_seconds(one.samples, workload), eager_prefill, prefill_seconds(one.wire, workload)
                ),
                decode=_speeds(
                    decode,
                    step_seconds(one.samples, workload),
                    eager_decode,
                    step_seconds(one.wire, workload),
                    rate=True,
                ),
                breaks=one.breaks,
                breaks_left_out=one.breaks_left_out,
                fallbacks=one.fallbacks,
                failure=one.failure,
                samples=one.samples,
                wire=one.wire,
            )
            for one in found
        ),
    )


def prefill_seconds(samples: Samples, workload: Workload) -> dict[int, float]:
    """The median of each size."""
    return {tokens: median(times) for tokens, times in samples.prefill.items() if times}


def step_seconds(samples: Samples, workload: Workload) -> dict[int, float]:
    """Of each batch, the least long generation less the least short one, by steps: what disturbs only adds.

    A batch is left out where disturbance was more than that difference.
    """
    found = {}
    for batch, long in samples.long.items():
        seconds = (min(long) - min(samples.short[batch])) / workload.steps
        if seconds > 0:
            found[batch] = seconds
    return found


def _is_eager(one: Found) -> bool:
    variant = one.variant
    if variant.reference or variant.compile is not CompileMode.Nothing:
        return False
    return {variant.prefill, variant.decode} == {Policy.Disabled}


def _speeds(
    floors: tuple[Floor, ...],
    seconds: dict[int, float],
    eager: dict[int, float],
    wire: dict[int, float],
    *,
    rate: bool = False,
) -> tuple[Speed, ...]:
    return tuple(
        Speed(
            size=floor.size,
            seconds=took,
            of_floor=floor.seconds / took,
            times_eager=eager[floor.size] / took if floor.size in eager else None,
            tokens_per_second=floor.size / took if rate else None,
            wire_seconds=wire.get(floor.size),
        )
        for floor in floors
        if (took := seconds.get(floor.size)) is not None
    )


def read(path: Path) -> Result:
    """The result in `path`; ResultFileInvalid without one."""
    return result_file.read(path, Result, FORMAT, "bench graphs")
