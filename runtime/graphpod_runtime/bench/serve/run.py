"""The rows of a run, one after another, against one server."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from graphpod_runtime.bench import host
from graphpod_runtime.bench.output.progress import Progress
from graphpod_runtime.bench.serve.drive import drivers, target
from graphpod_runtime.bench.serve.drive.messages import Target, Tick
from graphpod_runtime.bench.serve.figures.report import Part, Report, Row
from graphpod_runtime.bench.serve.figures.summary import summary
from graphpod_runtime.bench.serve.load.arrivals import Closed, Open
from graphpod_runtime.bench.serve.load.length import Length
from graphpod_runtime.bench.serve.load.load import Load
from graphpod_runtime.bench.serve.options import Given, loads_of, read_words, wants_ids
from graphpod_runtime.bench.serve.suites import Words

LINE_SECONDS = 10.0
"""Between two lines of progress where no terminal overwrites one."""
WARM_OUTPUT = Length(8, 8)


@dataclass(frozen=True, slots=True)
class Setting:
    """What all rows of a run share. `processes` None: by the cores. `vocab` is the size of a vocabulary that the server
    is sure to have. `check` raises when the server is known to have ended.
    """

    target: Target
    processes: int | None
    warm_up: int | None
    vocab: int
    seed: int
    progress: Progress
    check: Callable[[], None]


class Run:
    """Measures rows; `keep` gets the report after each."""

    def __init__(self, setting: Setting, keep: Callable[[Report], None]) -> None:
        self._setting = setting
        self._keep = keep
        self._ids: bool | None = None
        """Whether the server takes token ids; None before it was asked."""

    def rows(self, report: Report, rows: Sequence[Words]) -> Report:
        """`report` with these rows. DriverFailed, or what `check` raises, ends it; rows so far are kept."""
        for at, row in enumerate(rows, start=1):
            self._setting.check()
            self._setting.progress.say(f"{row.name} ({at} of {len(rows)}): {row.words or 'defaults'}")
            report = report.with_row(asyncio.run(self._row(row)))
            self._keep(report)
        return report

    async def _row(self, row: Words) -> Row:
        setting, given = self._setting, read_words(row.words)
        if self._ids is None and wants_ids(given):
            refusal = await target.refusal_of_ids(setting.target, setting.vocab)
            self._ids = refusal is None
            if refusal is not None:
                setting.progress.say(f"prompts are text: the server refuses token ids below {setting.vocab}: {refusal}")
        loads = loads_of(given, setting.seed, row.name, bool(self._ids), setting.vocab)
        processes = drivers.processes_of(setting.processes, host.cores(), loads)
        await self._warm(loads[0])
        shown = Shown(setting.progress, row.name, loads[0].requests)
        records, used = await drivers.run(setting.target, loads, processes, shown.tick)
        found = Row(
            name=row.name,
            words=row.words,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            drivers=used,
            parts=tuple(
                Part(words, load.form, load.seed, summary(seen, one.slo, open_loop=isinstance(load.loop, Open)))
                for words, one, load, seen in zip([row.words, *given.also], _all(given), loads, records, strict=True)
            ),
        )
        setting.progress.say(f"{row.name}: {_result(found)}")
        return found

    async def _warm(self, load: Load) -> None:
        """Requests that are not measured: the first ones of a server compile, allocate and open."""
        widest = load.loop.width if isinstance(load.loop, Closed) else 8
        count = min(widest, 32) if self._setting.warm_up is None else self._setting.warm_up
        if count == 0:
            return
        warm = msgspec.structs.replace(
            load,
            loop=Closed(count), conversations=count, turns=1, output=WARM_OUTPUT, cancel=0.0, seed=f"{load.seed}:warm",
        )  # fmt: skip
        self._setting.progress.passing(f"warm-up: {count} requests")
        await drivers.run(self._setting.target, [warm], 1, lambda tick: None)


def _all(given: Given) -> list[Given]:
    return [given, *(read_words(words) for words in given.also)]


def _result(row: Row) -> str:
    seen = row.parts[0].seen
    failed = f"{row.failed} FAILED, " if row.failed else ""
    return f"{failed}{seen.completed} completed in {seen.seconds:.1f} s, {seen.output_tokens_per_second:.0f} tok/s"


class Shown:
    """The line of progress of one row."""

    def __init__(self, progress: Progress, name: str, requests: int | None) -> None:
        self._progress = progress
        self._name = name
        self._requests = requests
        self._began = self._said = time.monotonic()

    def tick(self, tick: Tick) -> None:
        """Shows what all drivers did so far."""
        now = time.monotonic()
        rate = tick.pieces / (now - self._began) if now > self._began else 0.0
        line = (
            f"{self._name}: {tick.ended} of {self._requests} done, {tick.sent - tick.ended} in flight, "
            f"{tick.failed} failed, {rate:.0f} tok/s"
        )
        self._progress.passing(line)
        if not self._progress.terminal and now - self._said >= LINE_SECONDS:
            self._progress.say(line)
            self._said = now
