"""The loop over a link of lists and a runner of arithmetic."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from graphpod_policy import EngineConfig, GraphConfig, ModelConfig, PhasePlan, Policy, PrefixCache, ServingConfig
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine import loop
from graphpod_runtime.engine.loop import GAUGES_SECONDS, Loop
from graphpod_runtime.engine.schedule.batch import Batch, DecodeBatch
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.grammar.compiler import Compiled
from graphpod_runtime.wire.counters import Counters, Sample
from graphpod_runtime.wire.messages import (
    Abort,
    Arriving,
    Command,
    CounterSnapshot,
    Drain,
    Event,
    Finished,
    FinishReason,
    Grammar,
    Submit,
    Tokens,
)

END = 99


class CountingRunner:
    """The next token is the number of tokens so far; the end token comes after ten."""

    def __init__(self, pages: int = 40, **settings: Any) -> None:
        self.config = replace(config(), **settings)
        self.counters = Counters()
        self.host_tier = self.sleeper = None
        self.eos_ids, self.vocabulary = (END,), 100
        self.pages = PageAllocator(pages + 1)

    def start(self) -> None:
        """Nothing to start."""

    ahead = True

    def launch(self, batch: Batch) -> Yielded:
        ends = batch.ends if isinstance(batch, DecodeBatch) else [chunk.end for chunk in batch.chunks]
        return Yielded([end if end < 10 else END for end in ends])

    def choose(self, flight: Yielded) -> None:
        """Nothing: `launch` has."""

    def land(self, flight: Yielded) -> Yielded:
        return flight


class ListLink:
    """Commands from a list of turns, events into a list."""

    def __init__(self, *turns: list[Command]) -> None:
        self.turns = list(turns)
        self.frames: list[list[Event]] = []

    def poll(self, seconds: float) -> list[Command]:
        return self.turns.pop(0) if self.turns else []

    def send(self, events: list[Event]) -> None:
        self.frames.append(list(events))

    def of(self, id: str) -> list[Any]:
        """The events of one request."""
        sent = [event for frame in self.frames for event in frame]
        return [event for event in sent if isinstance(event, Tokens | Finished) and event.id == id]

    def samples(self) -> list[Sample]:
        """Every sample that was sent, in the order of time."""
        sent = [event for frame in self.frames for event in frame if isinstance(event, CounterSnapshot)]
        return [sample for snapshot in sent for sample in snapshot.values]


def config() -> EngineConfig:
    disabled = PhasePlan(Policy.Disabled, Policy.Disabled, ())
    return EngineConfig(
        ModelConfig("counting", "/nowhere"), "float32", 40, 2, 8, 4, GraphConfig(disabled, disabled),
        serving=ServingConfig(max_queue=1),
    )  # fmt: skip


def run(*turns: list[Command], **settings: Any) -> tuple[ListLink, CountingRunner, list[None]]:
    """The loop's life until it has drained, with `settings` in the engine's configuration."""
    link, runner, beats = ListLink(*turns), CountingRunner(**settings), []
    Loop(runner, link, lambda: beats.append(None)).run()
    return link, runner, beats


def test_tokens_come_one_by_one_and_the_stop_token_is_not_among_them() -> None:
    link, _, _ = run([Submit("a", [1] * 7, 20), Drain()])
    assert link.of("a") == [Tokens("a", [7]), Tokens("a", [8]), Tokens("a", [9]), Finished("a", FinishReason.Stop)]


def test_the_last_token_of_a_length_end_is_sent() -> None:
    link, _, _ = run([Submit("a", [1], 2), Drain()])
    assert link.of("a") == [Tokens("a", [1]), Tokens("a", [2]), Finished("a", FinishReason.Length)]


def test_an_abort_between_two_passes_ends_the_request_once() -> None:
    link, runner, _ = run([Submit("a", [1], 8)], [], [], [Abort("a")], [Abort("a"), Abort("unknown")], [Drain()])
    assert link.of("a") == [Tokens("a", [1]), Tokens("a", [2]), Finished("a", FinishReason.Abort)]
    assert runner.pages.available == runner.pages.capacity


def test_what_the_scheduler_refuses_is_finished_with_its_reason() -> None:
    submits: list[Command] = [Submit(id, [1], 2) for id in "abcd"]
    link, _, _ = run([*submits, Submit("e", [1] * 50, 2), Drain()])
    (rejected,) = link.of("d")
    assert (rejected.reason, rejected.message) == (FinishReason.Rejected, "2 requests run and 1 wait already")
    link, _, _ = run([Submit("e", [1] * 50, 2), Drain()])
    (refused,) = link.of("e")
    assert refused.reason is FinishReason.Error
    assert "50 tokens" in refused.message


def test_a_full_queue_refuses_a_request_before_its_grammar_is_compiled() -> None:
    """There is no model here whose vocabulary a compilation could read: it would be an error."""
    submits: list[Command] = [Submit(id, [1], 2) for id in "abc"]
    link, _, _ = run([*submits, Submit("d", [1], 2, grammar=Grammar("regex", "a")), Drain()])
    (rejected,) = link.of("d")
    assert (rejected.reason, rejected.message) == (FinishReason.Rejected, "2 requests run and 1 wait already")


def test_a_drain_finishes_what_is_open() -> None:
    link, _, _ = run([Submit("a", [1], 5)], [Drain()])
    assert link.of("a")[-1] == Finished("a", FinishReason.Length)


def test_every_turn_beats_and_the_counters_arrive_before_the_end_they_count() -> None:
    link, _, beats = run([Submit("a", [1], 3), Drain()])
    assert len(beats) == 4, "tokens land a turn after their launch"
    counters, token, finished = link.frames[-1]
    assert (token, finished) == (Tokens("a", [3]), Finished("a", FinishReason.Length))
    assert isinstance(counters, CounterSnapshot)
    values = {sample.name: sample.value for sample in link.samples()}
    assert values["graphpod_requests_running"] == values["graphpod_kv_cache_usage_ratio"] == 0
    assert values["graphpod_kv_cache_capacity_tokens"] == 40 * 4
    assert values["graphpod_preemptions_total"] == 0


def test_a_first_token_that_is_the_last_one_leaves_before_its_end_is_counted() -> None:
    link, _, _ = run([Submit("a", [1], 1), Submit("b", [1, 2], 1), Drain()])
    tokens, (counters, *ends) = link.frames[-2:]
    assert tokens == [Tokens("a", [1]), Tokens("b", [2])]
    assert isinstance(counters, CounterSnapshot)
    assert ends == [Finished("a", FinishReason.Length), Finished("b", FinishReason.Length)]


@pytest.mark.parametrize(("prefix_cache", "cached"), [(PrefixCache.Off, 0), (PrefixCache.Auto, 2)])
def test_an_idle_engine_has_said_that_no_page_is_in_use(prefix_cache: PrefixCache, cached: int) -> None:
    """The request ends by its end token, with a pass in flight that still owns its pages. Those of the prefix cache
    can be taken: they are not in use.
    """
    link, runner, _ = run([Submit("a", [1] * 7, 20), Drain()], prefix_cache=prefix_cache)
    usage = [sample.value for sample in link.samples() if sample.name == "graphpod_kv_cache_usage_ratio"]
    assert usage[-2] > usage[-1] == 0
    assert runner.pages.available == runner.pages.capacity - cached


TIMES = ("queue_time", "prefill_time", "decode_time")


def timed(link: ListLink) -> list[int]:
    """How many requests each of TIMES has, as the loop said last."""
    latest = {sample.name: sum(sample.buckets) for sample in link.samples()}
    return [latest[f"graphpod_request_{name}_seconds"] for name in TIMES]


def test_a_request_is_timed_in_the_queue_in_prefill_and_while_it_decodes() -> None:
    link, _, _ = run([Submit("a", [1], 3), Submit("b", [1] * 7, 2), Drain()])
    assert timed(link) == [2, 2, 2]


def test_a_request_that_is_aborted_or_refused_counts_only_for_what_it_went_through() -> None:
    waits: list[Command] = [Submit(id, [1], 8) for id in "abc"]
    link, _, _ = run([*waits, Submit("d", [1], 8)], [], [], [Abort("c"), Abort("b")], [Drain()])
    assert timed(link) == [2, 2, 1]  # c never left the queue, d was refused, b ended without an answer


def test_a_preempted_request_was_in_the_queue_once() -> None:
    link, _, _ = run([Submit("a", [1], 9), Submit("b", [1], 9), Drain()], pages=4)
    preempted = [sample.value for sample in link.samples() if sample.name == "graphpod_preemptions_total"]
    assert preempted[-1] >= 1
    assert timed(link) == [2, 2, 2]


def test_a_frame_has_only_the_series_that_have_changed() -> None:
    link, _, _ = run([Submit("a", [1], 2)], [], [], [], [Submit("b", [1], 2), Drain()])
    first, *_, last = [event for frame in link.frames for event in frame if isinstance(event, CounterSnapshot)]
    capacity = "graphpod_kv_cache_capacity_tokens"
    assert capacity in {sample.name for sample in first.values}
    assert capacity not in {sample.name for sample in last.values}
    assert len(last.values) < len(first.values)


def test_the_queue_ends_before_the_pass_is_launched() -> None:
    """A launch takes as long as the pass where there is no device."""
    queued: list[int] = []

    class Launching(CountingRunner):
        def launch(self, batch: Batch) -> Yielded:
            samples = {sample.name: sample for sample in self.counters.snapshot()}
            queued.append(sum(samples["graphpod_request_queue_time_seconds"].buckets))
            return super().launch(batch)

    Loop(Launching(), ListLink([Submit("a", [1], 2), Drain()]), lambda: None).run()
    assert queued == [1, 1]


def test_whoever_sleeps_is_roused_before_the_first_pass_of_a_request_is_planned() -> None:
    did: list[str] = []

    class Launching(CountingRunner):
        def launch(self, batch: Batch) -> Yielded:
            did.append("launch")
            return super().launch(batch)

    link = ListLink([Submit("a", [1], 2)], [Drain()])
    Loop(Launching(), link, lambda: None, rouse=lambda: did.append("rouse")).run()
    assert did == ["rouse", "launch", "launch"]


def test_a_request_that_is_received_after_a_quiet_keeps_the_loop_awake_and_rehearses_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "REHEARSAL_SECONDS", 60.0)
    did: list[str] = []

    class Link(ListLink):
        def poll(self, seconds: float) -> list[Command]:
            did.append("waits" if seconds else "looks")
            return super().poll(seconds)

    def does(what: str) -> Callable[[], None]:
        return lambda: did.append(what)

    link = Link([], [Arriving()], [], [Drain()])
    Loop(CountingRunner(), link, lambda: None, 60.0, rouse=does("rouse"), rehearse=does("rehearse")).run()
    assert did == ["waits", "waits", "rouse", "rehearse", "looks", "looks"]


@pytest.mark.parametrize("asleep", [False, True])
def test_a_loop_that_looks_for_requests_rehearses_again_but_not_while_the_weights_are_away(
    monkeypatch: pytest.MonkeyPatch, asleep: bool
) -> None:
    monkeypatch.setattr(loop, "REHEARSAL_SECONDS", -1.0)
    monkeypatch.setattr(loop.Slumber, "asleep", asleep)
    did: list[str] = []
    link = ListLink([Submit("a", [1], 1)], [], [], [], [Arriving()], [Drain()])
    served = Loop(CountingRunner(), link, lambda: None, 60.0, rehearse=lambda: did.append("rehearse"))
    served.run()
    assert len(did) == (0 if asleep else 4), "each turn without work, until it drains"


class Clock:
    """Stands for the module `time` in the loop."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


LOAD = ("graphpod_requests_running", "graphpod_requests_waiting", "graphpod_kv_cache_usage_ratio")


def test_changed_gauges_of_the_load_leave_before_the_pass_and_not_more_often_than_their_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, link, runner = Clock(), ListLink(), CountingRunner()
    monkeypatch.setattr("graphpod_runtime.engine.loop.time", clock)
    loop = Loop(runner, link, lambda: None)

    def turn(*commands: Command, after: float = 0.0) -> list[Sample]:
        clock.now += after
        link.turns, link.frames = [list(commands)], []
        loop.turn()
        return [sample for sample in link.samples() if sample.name in LOAD]

    def values(samples: list[Sample]) -> dict[str, float]:
        return {sample.name.removeprefix("graphpod_"): sample.value for sample in samples}

    first = values(turn(Submit("a", [1] * 3, 9)))
    assert first["requests_running"] == 1
    assert link.frames[0] == [event for event in link.frames[0] if isinstance(event, CounterSnapshot)]
    assert turn(Submit("b", [1] * 3, 9), Submit("c", [1] * 3, 9), after=GAUGES_SECONDS / 2) == [], "too early"
    assert values(turn(after=GAUGES_SECONDS))["requests_waiting"] == 1
    assert link.frames[0] != link.frames[-1], "a frame of its own, before that of the pass"
    held = [turn(after=2 * GAUGES_SECONDS) for _ in range(2)]
    assert all(set(values(samples)) <= {"kv_cache_usage_ratio"} for samples in held), "what has not changed is not sent"


def test_a_device_that_runs_behind_has_its_pass_before_the_load_is_reported() -> None:
    link, frames = ListLink([Submit("a", [1] * 3, 9)]), list[int]()

    class Launching(CountingRunner):
        def launch(self, batch: Batch) -> Yielded:
            frames.append(sum(map(bool, link.frames)))
            return super().launch(batch)

    loop = Loop(Launching(), link, lambda: None)
    loop._runs_behind = True
    loop.turn()
    assert frames == [0]
    assert {sample.name: sample.value for sample in link.samples()}["graphpod_requests_running"] == 1


class AnyText:
    """Stands for a matcher: every token fits."""

    def deep_copy(self) -> "AnyText":
        return self

    def consume_token(self, token: int) -> None:
        """Fits."""

    def is_stopped(self) -> bool:
        return False


def test_a_request_that_waits_for_its_grammar_counts_as_waiting_and_its_wait_as_time_in_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, link, compiling = Clock(), ListLink(), Future[Any]()
    for module in ("loop", "grammars", "serving_metrics"):
        monkeypatch.setattr(f"graphpod_runtime.engine.{module}.time", clock)
    loop = Loop(CountingRunner(), link, lambda: None)
    monkeypatch.setattr(loop.grammars.compiler, "start", lambda grammar: compiling)

    def turn(*commands: Command) -> dict[str, Sample]:
        clock.now += 2 * GAUGES_SECONDS
        link.turns, link.frames = [list(commands)], []
        loop.turn()
        return {sample.name.removeprefix("graphpod_"): sample for sample in link.samples()}

    assert turn(Submit("a", [1] * 3, 2, grammar=Grammar("regex", "a")))["requests_waiting"].value == 1
    assert turn() == {}, "it waits as before"
    clock.now += 7
    compiling.set_result(Compiled(AnyText()))  # type: ignore[arg-type]
    found = turn()
    assert found["requests_waiting"].value == 0
    while loop.busy:
        found |= turn()
    assert found["requests_running"].value == 0
    assert 7 < found["request_queue_time_seconds"].value < 8


def test_an_idle_loop_sends_nothing() -> None:
    link = ListLink()
    loop = Loop(CountingRunner(), link, lambda: None)
    for _ in range(3):
        loop.turn()
    assert [event for frame in link.frames for event in frame] == []


def test_a_pass_counts_the_tokens_that_it_yields_and_the_prompts_that_it_completes() -> None:
    link, _, _ = run([Submit("a", [1] * 3, 4), Submit("b", [1] * 5, 2), Drain()])
    latest = {sample.name: sample for sample in link.samples()}
    tokens = latest["graphpod_iteration_tokens"]
    assert tokens.value == 3 + 4 + 5 + 2
    assert sum(latest["graphpod_request_max_tokens"].buckets) == 2
    assert latest["graphpod_request_max_tokens"].value == 4 + 2
    assert latest["graphpod_request_prefill_computed_tokens"].value == 3 + 5


class LaunchDelay:
    """So many looks find time left."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def left(self) -> float:
        self.looks -= 1
        return float(self.looks >= 0)


def test_what_comes_while_the_device_is_busy_is_part_of_the_next_pass() -> None:
    link = ListLink([Submit("a", [1], 3)], [], [Submit("b", [1], 3)], [Submit("late", [1], 3)])
    loop = Loop(CountingRunner(), link, lambda: None)
    loop._delay = LaunchDelay(looks=2)  # type: ignore[assignment]
    loop.turn()
    assert loop.scheduler.running == 2
