"""The engine's loop: commands in, one pass, events out, until it drains."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from graphpod_policy import EngineConfig
from graphpod_runtime.cache.host_tier import HostTier
from graphpod_runtime.engine.grammars import Grammars
from graphpod_runtime.engine.launch_delay import LaunchDelay
from graphpod_runtime.engine.run_ahead import Launching, RunAhead
from graphpod_runtime.engine.schedule.kv_space import Allocator
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.pooled import Pooled
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import DoesNotFit, Progress, QueueFull, Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Marks, Sequence
from graphpod_runtime.engine.schedule.yielded import NOTHING_LEFT
from graphpod_runtime.engine.serving_metrics import ServingMetrics
from graphpod_runtime.engine.sleep.slumber import Sleeper, Slumber
from graphpod_runtime.grammar.matcher import AnswerGrammar
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.messages import (
    Abort,
    Arriving,
    Command,
    CounterSnapshot,
    Drain,
    Event,
    Finished,
    FinishReason,
    Phases,
    Reload,
    Sleep,
    Submit,
    Tokens,
    Wake,
)
from graphpod_runtime.wire.wakefulness import REHEARSAL_SECONDS

IDLE_SECONDS = 0.5
"""An idle loop wakes this often, to beat."""
GRAMMAR_SECONDS = 0.001
"""A loop without other work looks this often for grammars that are compiled, and for masks that are written."""
COUNTERS_SECONDS = 1.0
"""A busy loop reports its counters this often, and whenever a request ends."""
GAUGES_SECONDS = 0.05
"""A busy loop looks this often whether the gauges of its load have changed, and reports those that have: an endpoint
picker chooses a replica by them. It reports before a pass, or once the device has it, so they hold while the pass runs,
however long that takes.
"""


class Runner(Launching[Any], Protocol):
    """What the loop needs of `engine.runner.Runner`."""

    config: EngineConfig
    counters: Counters
    eos_ids: tuple[int, ...]
    vocabulary: int
    host_tier: HostTier | None

    @property
    def sleeper(self) -> Sleeper | None: ...
    @property
    def pages(self) -> Allocator: ...
    def start(self) -> None: ...


class Link(Protocol):
    """What the loop needs of `wire.socket.EngineEnd`."""

    def poll(self, seconds: float) -> list[Command]: ...
    def send(self, events: list[Event]) -> None: ...


class Loop:
    """Owns the scheduler of a started runner."""

    def __init__(
        self,
        runner: Runner,
        link: Link,
        beat: Callable[[], None],
        awake: float = 0.0,
        *,
        runs_behind: bool = False,
        rouse: Callable[[], None] = lambda: None,
        rehearse: Callable[[], None] = lambda: None,
    ) -> None:
        """`beat` is called once a turn: silence means that a pass is stuck. `awake`: seconds without work before the
        loop sleeps. `runs_behind`: launches return before the device has run them. `rouse` is called for each request
        before its first pass is planned, and `rehearse` now and then while the loop looks for commands.
        """
        self._runner = runner
        path = Path(runner.config.model.path)
        self.grammars = Grammars(path, runner.vocabulary, runner.eos_ids, runner.counters)
        self._awake = awake
        self._worked, self._rehearsed = 0.0, float("-inf")
        """When it last had work, and when it last rehearsed."""
        self._rested = time.monotonic()
        """When it last had work, or began."""
        self._link = link
        self._beat = beat
        self._drains: float | None = None
        """Until when at most, once requests have ended."""
        self._reported = self._gauged = 0.0
        config = runner.config
        self.scheduler = Scheduler(
            runner.pages,
            Limits.serving(config),
            runner.eos_ids,
            runner.host_tier,
        )
        capacity = runner.pages.capacity * config.page_size
        self._metrics = ServingMetrics(
            runner.counters, self.scheduler, capacity, config.model.name, lambda: self.grammars.waiting
        )
        idle = config.features.sleep_after_seconds
        forget, ranks = self.scheduler.kv.forget, config.features.ranks
        self._slumber = Slumber(runner.sleeper, runner.counters, forget, beat, idle, ranks=ranks)
        self._runs_behind, self._rouse, self._rehearse = runs_behind, rouse, rehearse
        self._delay = LaunchDelay()
        self._pipeline = RunAhead(self.scheduler, runner, self._planned, self._delay if runs_behind else None)

    @property
    def busy(self) -> bool:
        """Whether a request is open or a pass in flight."""
        return self._pipeline.busy or self.grammars.waiting > 0

    def run(self) -> None:
        """Serves until a Drain has come and every request has ended. What the runner raises is not caught: after an
        error of the device no page can be trusted.
        """
        self._link.send([self._counters()])
        while self.busy or self._drains is None:
            self.turn()
        self.scheduler.kv.flush(self._drains or 0.0, self._beat)

    def turn(self) -> None:
        """One round: every command that came, one pass, its events."""
        self._beat()
        events: list[Event] = []
        for command in self._commands():
            events += self._obey(command)
        if self.grammars.waiting:
            for found in self.grammars.compiled():
                if isinstance(found, Finished):
                    events.append(found)
                else:
                    waited, grammar = found
                    events += self._submit(waited.command, grammar, waited.since)
            self._report_load()
        if busy := self._pipeline.busy:
            self._worked = self._rested = time.monotonic()
            landed = self._pipeline.turn()
            for progress in landed:
                self._metrics.progressed(progress)
                events += self._events(progress)
            self._metrics.landed(len(landed))
        elif not self.busy:
            self._slumber.rest(self._rested)
            self._stay_warm()
        said = self._slumber.changes()
        ended = bool(said) or any(isinstance(event, Finished) for event in events)
        # What ended in flight gives its pages back a turn later.
        rests = busy and not self.busy
        if ended:
            if busy and any(_has_first(progress.sequence) for progress in landed):
                # A first token that is the last one, too, waits for no counting.
                self._link.send([event for event in events if isinstance(event, Tokens)])
                events = [event for event in events if not isinstance(event, Tokens)]
            # Counters first: who reads the metrics after its answer finds its request counted.
            events.insert(0, self._counters())
        self._link.send([*events, *said])
        if not ended and (rests or (busy and time.monotonic() - self._reported > COUNTERS_SECONDS)):
            self._link.send([self._counters()])
        elif busy and self._runs_behind:
            self._report_load()

    def _commands(self) -> Iterator[Command]:
        """Those that come before the next pass is to be launched."""
        yield from self._link.poll(self._patience())
        while left := self._delay.left:
            yield from self._link.poll(0.0 if self._awake else left)

    def _patience(self) -> float:
        """Seconds to wait for a command."""
        if self._pipeline.busy:
            return GRAMMAR_SECONDS if self._pipeline.waits else 0.0
        if time.monotonic() - self._worked < self._awake:
            return 0.0
        return GRAMMAR_SECONDS if self.grammars.waiting else IDLE_SECONDS

    def _stay_warm(self) -> None:
        """While it looks for commands."""
        now = time.monotonic()
        looks = now - self._worked < self._awake and not self._slumber.asleep
        if looks and now - self._rehearsed > REHEARSAL_SECONDS:
            self._rehearse()
            self._rehearsed = time.monotonic()

    def _obey(self, command: Command) -> list[Event]:
        match command:
            case Submit():
                self._rouse()
                if (message := self._slumber.awaken()) is not None:
                    return [Finished(command.id, FinishReason.Error, message)]
                if command.grammar is None and command.reasoning is None:
                    return self._submit(command, None, time.monotonic())
                try:
                    # A request that has no room is not worth a compilation.
                    self.scheduler.refuse_full(self.grammars.waiting)
                except QueueFull as error:
                    return [Finished(command.id, FinishReason.Rejected, str(error))]
                self.grammars.wait(command)
            case Abort():
                if self.grammars.abort(command.id):
                    return [Finished(command.id, FinishReason.Abort)]
                if self.scheduler.abort(command.id):
                    self._metrics.left(command.id)
                    return [Finished(command.id, FinishReason.Abort)]
            case Arriving() if not self._slumber.asleep:
                self._worked = time.monotonic()
                self._rouse()
            case Sleep() | Wake() | Reload():
                self._slumber.obey(command)
            case Drain(seconds):
                self._drains = time.monotonic() + seconds
        return []

    def _submit(self, command: Submit, grammar: AnswerGrammar | None, arrived: float) -> list[Event]:
        sequence = _sequence(command, grammar)
        try:
            self.scheduler.submit(sequence)
        except QueueFull as error:
            return [Finished(command.id, FinishReason.Rejected, str(error))]
        except DoesNotFit as error:
            return [Finished(command.id, FinishReason.Error, str(error))]
        self._metrics.arrived(sequence, arrived)
        return []

    def _events(self, progress: Progress) -> list[Event]:
        """What the front hears of a request that has one more token or has ended."""
        sequence, events = progress.sequence, list[Event]()
        if progress.finish is FinishReason.Error:
            its_own = progress.token == NOTHING_LEFT
            return [Finished(sequence.id, FinishReason.Error, progress.message, its_own=its_own)]
        first = _has_first(sequence)
        prompt = sequence.prompt_logprobs if first else []
        cached = (sequence.cached or 0) if first else 0
        phases = self._metrics.phases(sequence.marks) if first and sequence.marks is not None else None
        if sequence.pooled is not None:
            return _embedding(sequence, sequence.pooled, phases)
        # A stop token ends the text, and is part of it only on request.
        if progress.finish is not FinishReason.Stop or progress.complete or sequence.includes_stop:
            logprobs = [] if progress.logprob is None else [progress.logprob]
            events.append(Tokens(sequence.id, [progress.token], logprobs, prompt, cached, phases))
        elif prompt or cached or phases is not None:
            events.append(Tokens(sequence.id, [], prompt_logprobs=prompt, cached=cached, phases=phases))
        if progress.finish is None:
            return events
        decoded = None if sequence.marks is None else self._metrics.decoded(sequence.marks)
        return [*events, Finished(sequence.id, progress.finish, decoded=decoded, complete=progress.complete)]

    def _planned(self) -> None:
        """A pass is planned, and not launched yet. A device that runs behind need not wait for a report."""
        self._metrics.planned()
        if not self._runs_behind:
            self._report_load()

    def _report_load(self) -> None:
        """Reports the gauges of the load that have changed, where the latest look is old enough."""
        if (now := time.monotonic()) - self._gauged > GAUGES_SECONDS:
            self._gauged = now
            if changed := self._metrics.load_changes():
                self._link.send([CounterSnapshot(changed)])

    def _counters(self) -> CounterSnapshot:
        self._metrics.update()
        self._reported = self._gauged = time.monotonic()
        return CounterSnapshot(self._runner.counters.changes())


def _sequence(command: Submit, grammar: AnswerGrammar | None) -> Sequence:
    return Sequence(
        id=command.id,
        tokens=list(command.prompt),
        prompt_len=len(command.prompt),
        max_tokens=command.max_tokens,
        sampling=Sampling(
            command.temperature, command.top_p, command.seed, command.top_k, command.min_p, command.processing
        ),
        stop_ids=tuple(command.stop_ids),
        ignore_eos=command.ignore_eos,
        wants=LogprobRequest(command.logprobs, command.prompt_logprobs, answer_ids=tuple(command.logprob_ids)),
        includes_stop=command.includes_stop,
        salt=command.salt,
        priority=command.priority,
        pooled=None if command.pooling is None else Pooled(command.pooling),
        grammar=grammar,
        marks=Marks() if command.traced else None,
    )


def _has_first(sequence: Sequence) -> bool:
    """Whether its latest token is its first one."""
    return len(sequence.tokens) == sequence.prompt_len + 1


def _embedding(sequence: Sequence, pooled: Pooled, phases: Phases | None) -> list[Event]:
    """All events of a request for an embedding: its one token only shows that the last row is finite."""
    if (vector := pooled.vector()) is None:
        return [Finished(sequence.id, FinishReason.Error, "the model gave no finite hidden states for this prompt")]
    answer = Tokens(sequence.id, [], cached=sequence.cached or 0, phases=phases, vector=vector)
    return [answer, Finished(sequence.id, FinishReason.Stop)]
