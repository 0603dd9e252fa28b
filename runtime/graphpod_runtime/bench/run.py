"""The order of a run: a survey, then every variant in a process of its own, each measured for some rounds.

On a CPU that holds them all, the engines stand side by side and take turns round by round: a shared machine's speed
moves by half within minutes, and ratios are of the same minutes. On a GPU, which holds one large model, one comes
after the other.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from graphpod_policy import Device
from graphpod_runtime.bench.figures.floors import ModelFacts
from graphpod_runtime.bench.figures.meter import Meter
from graphpod_runtime.bench.figures.result import Cache, Found, Left, Machine, Result, result_of
from graphpod_runtime.bench.figures.variants import Variant, engine_config
from graphpod_runtime.bench.figures.workload import Workload
from graphpod_runtime.bench.messages import (
    Breaks,
    Note,
    Order,
    Ready,
    Round,
    Serve,
    Served,
    Survey,
    Surveyed,
    Task,
    Transformers,
)
from graphpod_runtime.bench.output.progress import Progress
from graphpod_runtime.bench.process import Process, ProcessFailed
from graphpod_runtime.bench.wire_client import WireClient

CACHES = ("GRAPHPOD_COMPILE_CACHE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Where compiled code is kept, by environment variable."""
ROOM = 0.5
"""Part of the memory that engines side by side may fill with weights."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured, and where."""

    folder: Path
    random: bool
    device: Device
    dtype: str
    workload: Workload
    threads: int | None

    def words(self) -> dict[str, object]:
        """The part of it that every order carries."""
        return {
            "began": time.time(),
            "folder": str(self.folder),
            "device": self.device,
            "dtype": self.dtype,
            "random": self.random,
            "workload": self.workload,
            "threads": self.threads,
        }


@dataclass(slots=True)
class Turns:
    """One run. `keep` gets the result so far after every variant: minutes of work are not lost to a late error."""

    subject: Subject
    variants: Sequence[Variant]
    command: str
    progress: Progress
    keep: Callable[[Result], None]
    left_out: tuple[Left, ...] = ()
    _found: dict[str, Found] = field(default_factory=dict)
    _surveyed: Surveyed = field(init=False)

    def run(self) -> Result:
        """All of it. ProcessFailed when the survey cannot be made; a variant that fails is a row that says why."""
        names = ", ".join(variant.name for variant in self.variants)
        self.progress.say(f"{self.subject.folder} on {self.subject.device}: {names}")
        with self._process("survey", Survey(**self.subject.words())) as process:
            surveyed = process.answer(Surveyed)
        self._surveyed = surveyed
        machine, rates = surveyed.machine, surveyed.rates
        self.progress.say(
            f"{machine.device}: copies {rates.copy_bytes / 1e9:.0f} GB/s, multiplies "
            f"{rates.matmul_operations / 1e12:.3g} TFLOP/s ({self.subject.dtype})"
        )
        with tempfile.TemporaryDirectory(prefix="graphpod-bench-") as caches:
            together = side_by_side(self.subject.device, machine, surveyed.model, len(self.variants))
            for group in [self.variants] if together else [[variant] for variant in self.variants]:
                self._measure(group, Path(caches))
                self.keep(self._result())
        return self._result()

    def _measure(self, group: Sequence[Variant], caches: Path) -> None:
        """Starts all of `group`, then rounds in turns, then what needs no turns."""
        with ExitStack() as stack:
            engines: dict[str, Process] = {}
            for variant in group:
                self._found[variant.name] = Found(variant)

                def start(variant: Variant = variant) -> None:
                    engines[variant.name] = self._start(variant, caches, stack)

                self._try(variant.name, start)
            rounds = self.subject.workload.rounds
            for turn in range(1, rounds + 1):
                for name, engine in engines.items():
                    self.progress.passing(f"{name}: round {turn} of {rounds}")
                    self._try(name, partial(self._round, name, engine))
                self.progress.say(f"{', '.join(engines)}: round {turn} of {rounds} done")
            for name, engine in engines.items():
                if not self._found[name].variant.reference:
                    self._try(name, partial(self._breaks, name, engine))
                    if self.subject.workload.wire:
                        self._try(name, partial(self._wire, name, engine))

    def _start(self, variant: Variant, caches: Path, stack: ExitStack) -> Process:
        """An engine that is Ready and warm. What compiles starts twice where the cache is empty: cold, then warm."""
        name, subject = variant.name, self.subject
        if variant.reference:
            process = stack.enter_context(self._process(name, Transformers(**subject.words())))
            process.answer(Ready)
            self.progress.say(f"{name}: loaded")
            return process
        environment: dict[str, str] = {}
        if variant.compiled:
            folder = caches / variant.compiled
            environment = {name: str(folder / name.lower()) for name in CACHES}
            if not folder.exists():
                folder.mkdir()
                with self._process(name, self._serve(variant, Cache.Cold), environment) as process:
                    self._ready(name, process)
        cache = Cache.Warm if variant.compiled else Cache.Unused
        process = stack.enter_context(self._process(name, self._serve(variant, cache), environment))
        self._ready(name, process)
        return process

    def _serve(self, variant: Variant, cache: Cache) -> Serve:
        subject = self.subject
        config = engine_config(
            variant, subject.device, subject.workload, subject.folder, subject.dtype, subject.threads
        )
        return Serve(**subject.words(), config=config.canonical().decode(), cache=cache)

    def _ready(self, name: str, process: Process) -> None:
        start = process.answer(Ready).start
        assert start is not None
        self._add(name, starts=(*self._found[name].starts, start))
        self.progress.say(f"{name}: Ready in {start.seconds:.1f} s (cache {start.cache})")

    def _round(self, name: str, engine: Process) -> None:
        engine.ask(Task.Round)
        answer = engine.answer(Round)
        self._add(name, samples=self._found[name].samples + answer.samples, fallbacks=answer.fallbacks)

    def _breaks(self, name: str, engine: Process) -> None:
        engine.ask(Task.Breaks)
        answer = engine.answer(Breaks)
        self._add(name, breaks=answer.costs, breaks_left_out=answer.left_out)

    def _wire(self, name: str, engine: Process) -> None:
        """One round from this process, over the engine's wire."""
        self.progress.passing(f"{name}: over the wire")
        with tempfile.TemporaryDirectory(prefix="graphpod-") as folder:
            with WireClient(Path(folder), engine.check) as wired:
                engine.ask(Task.Wire, folder)
                meter = Meter(wired.generate, self.subject.workload, self._surveyed.model.vocab)
                meter.warm()
                self._add(name, wire=meter.round())
            engine.answer(Served)
        self.progress.say(f"{name}: measured over the wire")

    def _process(self, name: str, order: Order, environment: dict[str, str] | None = None) -> Process:
        def note(received: Note) -> None:
            (self.progress.passing if received.passing else self.progress.say)(f"{name}: {received.text}")

        self.progress.passing(f"{name}: starting")
        return Process(order, note, environment)

    def _try(self, name: str, work: Callable[[], None]) -> None:
        """A variant that fails does not end the others; its row says why, and nothing more is asked of it."""
        if self._found[name].failure is not None:
            return
        try:
            work()
        except ProcessFailed as error:
            self._add(name, failure=str(error))
            self.progress.say(f"{name}: failed: {error}")

    def _add(self, name: str, **found: object) -> None:
        self._found[name] = msgspec.structs.replace(self._found[name], **found)

    def _result(self) -> Result:
        surveyed = self._surveyed
        return result_of(
            self.command,
            datetime.now(UTC).isoformat(timespec="seconds"),
            round(self.progress.seconds, 1),
            surveyed.machine,
            surveyed.model,
            self.subject.workload,
            surveyed.rates,
            self._found.values(),
            self.left_out,
        )


def side_by_side(device: Device, machine: Machine, model: ModelFacts, engines: int) -> bool:
    """Whether that many engines stand side by side and take turns."""
    weights = model.held_bytes * engines
    return device is Device.Cpu and weights < ROOM * machine.memory_bytes
