"""What took how long: each step is reported when it ends, one after another, so that the lines add up to the whole."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = "steps.json"  # in the testbed's folder
WIDTH = 36  # of the longest name

Report = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    what: str
    seconds: float


@dataclass
class Steps:
    report: Report
    clock: Callable[[], float] = time.monotonic
    done: list[Step] = field(default_factory=list)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Times the block. One that fails is no step done: its error says what happened."""
        began = self.clock()
        yield
        self.done.append(Step(what, round(self.clock() - began, 3)))
        self.report(line(self.done[-1]))

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.done)


def line(step: Step) -> str:
    return f"  {step.what:<{WIDTH}} {step.seconds:5.1f} s"


def save(steps: Steps, folder: Path) -> None:
    """For programs that compare: {"seconds": 5.1, "steps": [{"what": …, "seconds": …}, …]}."""
    data = {"seconds": round(steps.seconds, 3), "steps": [asdict(step) for step in steps.done]}
    (folder / FILE).write_text(json.dumps(data, indent=1))


def load(folder: Path) -> list[Step]:
    """The steps of the last `up`; none before its end."""
    path = folder / FILE
    return [Step(**step) for step in json.loads(path.read_text())["steps"]] if path.exists() else []
