"""Which files of the runtime and the policy a pass enters, from the scheduler's batch to its sampled tokens:

    python -m tests.entered_files [--device cuda]

A file is entered when a function of it is called: one that its decorator wrote (a dataclass's constructor) counts, too.
`tests/unit/runtime/engine/test_hot_path.py` holds the figures to what they are.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from graphpod_policy import Device, Phase, Policy
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import Batch, PrefillBatch
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "runtime", ROOT / "policy"
WARM_TURNS = 8
"""Decode passes before one is steady: members are seated, series made, pages crossed."""


class Entered(NamedTuple):
    """Files in the order in which they were first entered, from the repository's root."""

    files: tuple[str, ...]

    @property
    def lines(self) -> int:
        """Of whole files."""
        return sum(len((ROOT / file).read_text().splitlines()) for file in self.files)


class Watch:
    """Notes the files whose functions are called."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}

    @contextmanager
    def __call__(self) -> Iterator[None]:
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        name = frame.f_code.co_filename
        if name.startswith("<"):
            # a method that a decorator wrote has the globals of its class's module
            name = frame.f_globals.get("__file__", name)
        path = Path(name)
        if any(path.is_relative_to(source) for source in SOURCES):
            self.files.setdefault(str(path.relative_to(ROOT)))


def entered(runner: Runner, phase: Phase, sampling: Sampling) -> Entered:
    """By a steady pass of `phase` over three requests: two that choose greedily and one that chooses by `sampling`."""
    watch, passes = Watch(), 0
    launch, land = runner.launch, runner.land

    def watched(batch: Batch) -> Any:
        nonlocal passes
        if isinstance(batch, PrefillBatch) is not (phase is Phase.Prefill):
            return launch(batch), False
        passes += 1
        if passes <= WARM_TURNS:
            return launch(batch), False
        with watch():
            return launch(batch), True

    def chosen(flight: Any) -> None:
        launched, steady = flight
        if not steady:
            return runner.choose(launched)
        with watch():
            return runner.choose(launched)

    def landed(flight: Any) -> Any:
        launched, steady = flight
        if not steady:
            return land(launched)
        with watch():
            return land(launched)

    scheduler = Scheduler(runner.pages, Limits.of(runner.config, max_queue=64), runner.eos_ids)
    turns = RunAhead(scheduler, _Launching(watched, landed, chosen))
    rounds = 1 if phase is Phase.Decode else WARM_TURNS + 2
    for number in range(rounds):
        for index in range(3):
            chosen = sampling if index == 1 else Sampling()
            prompt = [5 + (number * 7 + index * 3 + at) % 190 for at in range(9)]
            wanted = 2 * WARM_TURNS if phase is Phase.Decode else 1
            scheduler.submit(Sequence(f"{number}.{index}", prompt, 9, wanted, chosen, ignore_eos=True))
        while turns.busy:
            turns.turn()
    return Entered(tuple(watch.files))


class _Launching(NamedTuple):
    """A Launching of two functions."""

    launch: Callable[[Batch], Any]
    land: Callable[[Any], Any]
    choose: Callable[[Any], None]
    ahead: bool = True


def main(arguments: list[str] | None = None) -> None:
    from tests.unit.runtime.conftest import engine_config, write_llama

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=[str(device) for device in Device], default=str(Device.Cpu))
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        config = engine_config(write_llama(Path(folder)), Policy.Breakable, Policy.Full, device=Device(options.device))
        for phase in (Phase.Decode, Phase.Prefill):
            for name, sampling in (("greedy", Sampling()), ("sampled", Sampling(0.8, 0.9, seed=1, top_k=20))):
                runner = Runner(config, lambda report: None)  # a new one, whose seats have had no other sequences
                runner.start()
                found = entered(runner, phase, sampling)
                print(f"{phase}, {name}: {len(found.files)} files, {found.lines} lines")
                for file in found.files:
                    print(f"  {len((ROOT / file).read_text().splitlines()):5} {file}")


if __name__ == "__main__":
    main()
