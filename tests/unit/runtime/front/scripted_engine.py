"""An engine process whose runner follows a script: it answers with the prompt's own tokens, then the end token.

`front_forks.py` makes an engine process of it; `GRAPHPOD_SCRIPT` chooses how the start and the passes go.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy

from graphpod_policy import EngineConfig, ExitCode, Phase, PhasePlan
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.schedule.batch import Batch, DecodeBatch
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.yielded import PooledSum, Yielded
from graphpod_runtime.engine.sleep.problems import CannotReload
from graphpod_runtime.front.status import first_report
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.messages import Logprob
from graphpod_runtime.wire.report import Report, StartStage, State

END = 256
VOCABULARY = 260
"""Rows of an embedding: some have no token."""
VECTOR = numpy.array([3, 4], dtype=numpy.float32)
"""Every row's final state."""
PASS_SECONDS = 0.001
SENT_SECONDS = 1.0
"""In which a report leaves the process: no capture dies as quickly as a script could."""


SLOW_STEPS, SLOW_SECONDS = 16, 0.5
"""Of a capture that goes on: together more than its limit."""


class Flight(NamedTuple):
    """A pass, and the sequences of its rows that yield a token."""

    yielded: Yielded
    sequences: tuple[Sequence | None, ...]


class ScriptedSleeper:
    """Moves nothing. While the file `GRAPHPOD_SLEEP_HOLD` exists, a wake lasts, and a reload finds another model."""

    asleep, sleeps, reloads, current, source = False, True, True, False, "Memory"

    def sleep(self, read: Callable[[], None]) -> int:
        self.asleep = True
        return 1000

    def wake(self, read: Callable[[], None]) -> None:
        while Path(os.environ["GRAPHPOD_SLEEP_HOLD"]).exists():
            time.sleep(PASS_SECONDS)
        self.asleep = False

    def reload(self, read: Callable[[], None]) -> None:
        if Path(os.environ["GRAPHPOD_SLEEP_HOLD"]).exists():
            raise CannotReload("another model")
        self.asleep = False


class ScriptedRunner:
    """Satisfies the loop's Runner without a model. Scripts: "" serves; "slow" too, after a slow capture; "fail",
    "hang", "crash" and "segfault" are starts that do not reach Ready, "check" one that compares its graphs for ever;
    "raise" fails in its first pass, "stick" never comes back from it. "sleeps" serves, and can sleep.
    """

    def __init__(self, config: EngineConfig, report: Callable[[Report], None], began: float) -> None:
        self.config = config
        self.counters = Counters()
        self.host_tier = None
        self.sleeper = ScriptedSleeper() if os.environ.get("GRAPHPOD_SCRIPT", "") == "sleeps" else None
        self.eos_ids, self.vocabulary = (END,), VOCABULARY
        self.pages = PageAllocator(1 + config.max_batch * -(-config.max_model_len // config.page_size))
        self._report = report
        self._script = os.environ.get("GRAPHPOD_SCRIPT", "")

    def start(self) -> None:
        report = first_report(self.config)
        self._report(report)
        if self._script == "fail":
            raise StartFailure(ExitCode.CaptureFailed, "prefill size 8: injected; lower the ladder")
        if self._script == "hang":
            time.sleep(3600)
        if self._script == "slow":
            report.state = State.Capturing
            for _ in range(SLOW_STEPS):
                self._report(report)
                time.sleep(SLOW_SECONDS)
        if self._script == "crash":
            os._exit(3)
        if self._script == "segfault":
            report.state, report.stages[StartStage.PrefillCapture] = State.Capturing, 0.5
            self._report(report)
            time.sleep(SENT_SECONDS)
            os.kill(os.getpid(), signal.SIGSEGV)
        if self._script == "check":
            report.state = State.SelfChecking
            self._report(report)
            time.sleep(3600)
        report.stages[StartStage.Load], report.vocabulary = 0.25, VOCABULARY
        report.state, report.kv_pages = State.Ready, self.pages.capacity
        for phase in Phase:
            planned: PhasePlan = self.config.phase(phase)
            report.phases[phase].captured = len(planned.sizes)
        self._report(report)

    ahead = True

    def launch(self, batch: Batch) -> Flight:
        if isinstance(batch, DecodeBatch):
            return Flight(self._pass(batch), batch.sequences)
        return Flight(self._pass(batch), tuple(chunk.sequence if chunk.last else None for chunk in batch.chunks))

    def _pass(self, batch: Batch) -> Yielded:
        if self._script == "raise":
            raise RuntimeError("the device fell off the bus")
        time.sleep(3600 if self._script == "stick" else PASS_SECONDS)
        if isinstance(batch, DecodeBatch):
            tokens = [next_token(*row) for row in zip(batch.sequences, batch.ends, strict=True)]
            return Yielded(tokens, tuple(map(answer_logprob, batch.sequences, tokens)))
        tokens = [next_token(chunk.sequence, chunk.end) if chunk.last else -1 for chunk in batch.chunks]
        return Yielded(
            tokens,
            tuple(map(answer_logprob, (chunk.sequence for chunk in batch.chunks), tokens)),
            tuple(
                tuple(logprob(chunk.sequence.tokens[at], chunk.sequence.wants.prompt) for at in chunk.scored)
                for chunk in batch.chunks
            ),
            tuple(
                PooledSum(at, len(chunk.pooled), len(chunk.pooled) * VECTOR)
                for at, chunk in enumerate(batch.chunks)
                if chunk.pooled
            ),
        )

    def choose(self, flight: Flight) -> None:
        """What `launch` has chosen, but for reasoning that is to end."""
        for row, sequence in enumerate(flight.sequences):
            if sequence is not None and sequence.grammar is not None and sequence.grammar.forced is not None:
                flight.yielded.tokens[row] = sequence.grammar.forced

    def land(self, flight: Flight) -> Yielded:
        return flight.yielded


def next_token(sequence: Sequence, length: int) -> int:
    """After `length` tokens: the prompt again, then its end, for ever."""
    said = length - sequence.prompt_len
    return [*sequence.tokens[: sequence.prompt_len], END][said % (sequence.prompt_len + 1)]


def logprob(token: int, top: int | None) -> Logprob:
    """Of a token: -1 for the first of the vocabulary, less for each one after it; the likeliest are the first ones."""
    return Logprob(token, -1.0 - token, tuple((id, -1.0 - id) for id in range(top or 0)))


def answer_logprob(sequence: Sequence, token: int) -> Logprob | None:
    """Where it was asked for."""
    return None if sequence.wants.answer is None else logprob(token, sequence.wants.answer)
