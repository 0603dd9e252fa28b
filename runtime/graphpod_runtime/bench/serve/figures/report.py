"""What one command found, as a value and as JSON."""

from pathlib import Path

import msgspec

from graphpod_runtime.bench.figures import result_file
from graphpod_runtime.bench.serve.figures.summary import Struct, Summary
from graphpod_runtime.bench.serve.load.prompts import Form

FORMAT = "graphpod bench serve 1"
BUSY = 0.7
"""Share of a core from which a driver may be what is measured."""
LATE = 0.005
"""Seconds behind its clock (p99) from which it is, too."""


class Machine(Struct, frozen=True):
    """Where the drivers ran, and where the server ran too if its URL is of this machine."""

    cpu: str
    cores: int
    gpus: tuple[str, ...]
    """Name and driver of each, as nvidia-smi has them."""
    system: str
    versions: dict[str, str]


class Server(Struct, frozen=True):
    """What was asked. `starts` are seconds from process start to ready, one for each start of our own engine."""

    url: str
    model: str
    version: str
    """As the server reports itself; "unknown" where it does not."""
    command: str | None = None
    """What started it, where this command did."""
    starts: tuple[float, ...] = ()


class Drivers(Struct, frozen=True):
    """What the load cost on the client's side. `busiest` and `mean` are shares of one core; `lag` is by how many
    seconds the event loops were late (p99 of the worst), and so the times of pieces.
    """

    processes: int
    busiest: float
    mean: float
    lag: float


class Part(Struct, frozen=True):
    """One of the loads that ran at the same time: its words on the command line, what its prompts were made of, and
    what was seen.
    """

    words: str
    prompts: Form
    seed: str
    seen: Summary


class Row(Struct, frozen=True):
    """One measurement; `words` and `date` say how to make it again."""

    name: str
    words: str
    date: str
    drivers: Drivers
    parts: tuple[Part, ...]

    @property
    def failed(self) -> int:
        """Requests of all parts that failed."""
        return sum(part.seen.failed for part in self.parts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the figures may be the driver's, or not what they seem."""
        found = []
        if self.drivers.busiest > BUSY:
            found.append(
                f"a driver process used {self.drivers.busiest:.0%} of a core: the client may be the limit. "
                f"Give more --processes (now {self.drivers.processes}), on a machine with free cores."
            )
        if self.drivers.lag > LATE:
            found.append(
                f"the client was up to {1e3 * self.drivers.lag:.0f} ms late (p99) to see what came. Give it "
                "cores of its own: latencies below that are not the server's."
            )
        for part in self.parts:
            seen = part.seen
            if seen.late is not None and seen.late.p99 > LATE:
                found.append(
                    f"requests were sent up to {1e3 * seen.late.p99:.0f} ms late (p99): the client could not follow "
                    "its schedule. Give more --processes."
                )
            if seen.short:
                found.append(
                    f"{seen.short} answers have fewer tokens than asked for: the server stopped by itself. "
                    "Compare only runs with the same lengths."
                )
            if seen.without_usage:
                found.append(
                    f"{seen.without_usage} answers came without usage: their tokens are counted by pieces of the "
                    "stream, and their input is not counted."
                )
        return tuple(found)


class Report(Struct, frozen=True):
    """All of it."""

    format: str
    command: str
    date: str
    machine: Machine
    server: Server
    rows: tuple[Row, ...] = ()

    def row(self, name: str) -> Row | None:
        """The row of that name."""
        return next((row for row in self.rows if row.name == name), None)

    def with_row(self, new: Row) -> "Report":
        """With `new` in the place of the row of its name, or at the end."""
        if self.row(new.name) is None:
            return msgspec.structs.replace(self, rows=(*self.rows, new))
        return msgspec.structs.replace(self, rows=tuple(new if row.name == new.name else row for row in self.rows))


def read(path: Path) -> Report:
    """The report in `path`; ResultFileInvalid without one."""
    return result_file.read(path, Report, FORMAT, "bench serve")
