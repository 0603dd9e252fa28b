"""When an engine sleeps, over a sleeper of words."""

from dataclasses import replace

import pytest

from graphpod_policy import FeatureConfig
from graphpod_policy.start.flags import BY_FLAGS
from graphpod_runtime.engine.loop import Loop
from graphpod_runtime.engine.sleep.problems import CannotReload, CannotSleep, CannotWake
from graphpod_runtime.engine.sleep.slumber import Slumber
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.messages import (
    Abort,
    Command,
    Drain,
    Event,
    Finished,
    FinishReason,
    Reload,
    Residence,
    Sleep,
    Submit,
    Tokens,
    Wake,
)
from tests.unit.runtime.engine.test_loop import CountingRunner, ListLink


class Words:
    """A sleeper that notes what it was asked for, and fails as `fails` says."""

    source = "Memory"

    def __init__(self, *, sleeps: bool = True, reloads: bool = True, current: bool = False) -> None:
        self.asleep, self.sleeps, self.reloads, self.current = False, sleeps, reloads, current
        self.did: list[str] = []
        self.fails: Exception | None = None

    def _do(self, what: str) -> None:
        self.did.append(what)
        if self.fails is not None:
            raise self.fails

    def sleep(self, read: object) -> int:
        self._do("sleep")
        self.asleep = True
        return 1000

    def wake(self, read: object) -> None:
        self._do("wake")
        self.asleep = False

    def reload(self, read: object) -> None:
        self._do("reload")
        self.asleep = False


def ask(id: str, tokens: int = 2) -> Submit:
    return Submit(id, [1, 2, 3], tokens)


def run(words: Words | None, *turns: list[Command], idle: int | None = None) -> tuple[CountingRunner, ListLink]:
    """A loop over these turns, to its end."""
    runner = CountingRunner()
    runner.config = replace(runner.config, features=FeatureConfig(sleep=True, sleep_after_seconds=idle))
    runner.sleeper = words  # type: ignore[assignment]
    link = ListLink(*turns, *([[]] * 20), [Drain()])
    Loop(runner, link, lambda: None).run()
    return runner, link


def said(link: ListLink) -> list[Residence]:
    return [event for frame in link.frames for event in frame if isinstance(event, Residence)]


def order(link: ListLink) -> list[str]:
    """Ends and changes, in the order in which the front hears of them."""
    sent: list[Event] = [event for frame in link.frames for event in frame]
    return [
        event.id if isinstance(event, Finished) else "asleep" if event.asleep else "awake"
        for event in sent
        if isinstance(event, Finished | Residence)
    ]


def test_it_falls_asleep_once_open_requests_have_ended() -> None:
    words = Words()
    runner, link = run(words, [ask("a", 5), Sleep()])
    assert order(link) == ["a", "asleep"]
    (residence,) = said(link)
    assert (residence.freed_bytes, residence.source, residence.idle) == (1000, "Memory", False)
    assert words.did == ["sleep"]
    assert runner.counters.value("graphpod_asleep") == 1
    assert runner.counters.value("graphpod_sleep_freed_bytes") == 1000


@pytest.mark.parametrize(
    ("words", "transitions"),
    [
        (Words(), ["reload", "sleep", "wake"]),
        (Words(reloads=False), ["sleep", "wake"]),
        (Words(sleeps=False), ["reload"]),
    ],
)
def test_series_of_what_it_can_do_begin_at_zero_for_rates_to_see_the_first_event(
    words: Words, transitions: list[str]
) -> None:
    counters = Counters()
    Slumber(words, counters, lambda: None, lambda *_: None)
    samples = [one for one in counters.snapshot() if "transition" in one.labels]
    for name in ("graphpod_sleep_failures_total", "graphpod_sleep_transition_duration_seconds"):
        assert sorted(one.labels["transition"] for one in samples if one.name == name) == transitions
    assert {(one.value, sum(one.buckets)) for one in samples} == {(0, 0)}


def test_wake_brings_it_back_and_says_so_when_it_is_awake() -> None:
    words = Words()
    runner, link = run(words, [Wake()], [Sleep()], [], [Wake()], [ask("a")])
    assert order(link) == ["awake", "asleep", "awake", "a"]
    assert words.did == ["sleep", "wake"]
    assert runner.counters.value("graphpod_asleep") == 0


def test_a_request_that_comes_all_the_same_is_answered_and_it_sleeps_again() -> None:
    words = Words()
    _, link = run(words, [Sleep()], [], [ask("a")])
    assert order(link) == ["asleep", "awake", "a", "asleep"]
    assert [event.ids for event in link.of("a") if isinstance(event, Tokens)] == [[3], [4]]


def test_without_requests_it_sleeps_by_itself_and_the_next_one_wakes_it() -> None:
    words = Words()
    _, link = run(words, [], [], [ask("a")], idle=0)
    assert order(link) == ["asleep", "awake", "a", "asleep"]
    assert [one.idle for one in said(link)] == [True, False, True]


def test_idle_seconds_that_are_not_over_change_nothing() -> None:
    words = Words()
    run(words, [ask("a")], idle=3600)
    assert words.did == []


def slumber(words: Words, clock: list[float]) -> Slumber:
    """It sleeps after ten seconds of the `clock`, whose last entry is the time."""
    return Slumber(words, Counters(), lambda: None, lambda: None, 10, lambda: clock[-1])


def test_woken_by_command_it_stays_awake_for_as_long_as_after_a_request() -> None:
    words, clock = Words(), [0.0]
    one = slumber(words, clock)
    for now, did in ((9.9, []), (10.0, ["sleep"]), (100.0, ["sleep"])):
        clock.append(now)
        one.rest(0.0)
        assert words.did == did
    one.obey(Wake())
    for now, did in ((109.9, ["sleep", "wake"]), (110.0, ["sleep", "wake", "sleep"])):
        clock.append(now)
        one.rest(0.0)
        assert words.did == did
    one.obey(Reload("r1"))
    for now in (111.0, 120.9):
        clock.append(now)
        one.rest(0.0)
    assert words.did == ["sleep", "wake", "sleep", "reload"]


def test_asleep_for_want_of_requests_it_says_that_a_command_has_come() -> None:
    words, clock = Words(), [0.0]
    one = slumber(words, clock)
    clock.append(10.0)
    one.rest(0.0)
    one.obey(Sleep())
    assert [(each.asleep, each.idle) for each in one.changes()] == [(True, True), (True, False)]
    one.obey(Sleep())
    assert [(each.asleep, each.idle) for each in one.changes()] == [(True, False)]
    assert words.did == ["sleep"]


def test_a_sleep_that_failed_is_tried_again_after_the_next_request_and_a_refused_reload_prevents_none() -> None:
    words, clock = Words(), [0.0]
    one = slumber(words, clock)
    words.fails = CannotReload("another model")
    one.obey(Reload("r1"))
    one.rest(0.0)
    clock.append(10.0)
    words.fails = CannotSleep("no room on the host")
    for _ in range(3):
        one.rest(0.0)
    assert words.did == ["reload", "sleep"]
    words.fails = None
    clock.append(30.0)
    one.rest(20.0)
    assert (words.did, one.asleep) == (["reload", "sleep", "sleep"], True)


@pytest.mark.parametrize(("commands", "hits"), [((), 28), ((Sleep(), Wake()), 0)])
def test_what_slept_finds_no_prefix(commands: tuple[Command, ...], hits: int) -> None:
    words, prompt, waiting = Words(), list(range(1, 33)), [list[Command]()] * 10
    turns = [turn for command in commands for turn in ([command], *waiting)]
    runner, _ = run(words, [Submit("a", prompt, 1)], *waiting, *turns, [Submit("b", prompt, 1)])
    assert words.did == ["sleep", "wake"][: len(commands)]
    assert runner.counters.value("graphpod_prefix_cache_hit_tokens_total") == hits


def test_weights_that_have_no_room_on_the_device_any_more_leave_it_asleep() -> None:
    words = Words()
    runner = CountingRunner()
    runner.sleeper = words  # type: ignore[assignment]
    link = ListLink([Sleep()], [], [])
    loop = Loop(runner, link, lambda: None)
    for _ in range(2):
        loop.turn()
    words.fails = CannotWake("no room")
    link.turns = [[ask("a")], [Wake()]]
    loop.turn()
    (refused,) = link.of("a")
    assert refused.reason is FinishReason.Error
    assert "no room" in refused.message
    loop.turn()
    assert (said(link)[-1].asleep, "no room" in said(link)[-1].problem) == (True, True)
    assert runner.counters.value("graphpod_sleep_failures_total", transition="wake") == 2
    words.fails = None
    link.turns = [[Wake()], [ask("b", 1)], []]
    for _ in range(4):
        loop.turn()
    assert said(link)[-1].problem == ""
    assert link.of("b")[-1].reason is FinishReason.Length


def test_what_could_not_come_back_does_not_leave() -> None:
    words = Words()
    words.fails = CannotSleep("no room on the host")
    _, link = run(words, [Sleep()], [], [ask("a")])
    assert order(link) == ["awake", "a"]
    assert said(link)[0].problem == "no room on the host"
    assert words.did == ["sleep"]


def test_new_weights_wait_for_open_requests_and_have_a_name() -> None:
    words = Words()
    runner, link = run(words, [ask("a", 5), Reload("r2")])
    assert order(link) == ["a", "awake"]
    assert [(one.revision, one.refused) for one in said(link)] == [("r2", "")]
    assert runner.counters.value("graphpod_sleep_failures_total") == 0


def test_new_weights_that_are_refused_leave_the_old_revision() -> None:
    words = Words()
    runner = CountingRunner()
    runner.sleeper = words  # type: ignore[assignment]
    link = ListLink([Reload("r1")])
    loop = Loop(runner, link, lambda: None)
    loop.turn()
    words.fails = CannotReload("another model")
    link.turns = [[Reload("r2")]]
    loop.turn()
    last = said(link)[-1]
    assert (last.revision, last.refused, last.problem) == ("r1", "r2", "another model")
    assert runner.counters.value("graphpod_sleep_failures_total", transition="reload") == 1


def test_weights_that_are_current_get_the_name_while_requests_are_open() -> None:
    words = Words(current=True)
    _, link = run(words, [ask("a", 5), Reload("r2")])
    assert order(link) == ["awake", "a"]
    assert ([one.revision for one in said(link)], words.did) == (["r2"], [])


def test_an_engine_told_to_sleep_sleeps_again_after_new_weights() -> None:
    words = Words()
    _, link = run(words, [Sleep()], [], [Reload("r1")])
    assert order(link) == ["asleep", "awake", "asleep"]


def test_an_engine_without_the_feature_refuses_by_name() -> None:
    for words in (None, Words(sleeps=False)):
        _, link = run(words, [Sleep()], [Wake()], [ask("a")])
        assert [one.problem.startswith("this engine cannot sleep: set spec.engine.sleep") for one in said(link)] == [
            True,
            True,
        ]
    for words in (None, Words(reloads=False)):
        _, link = run(words, [Reload("r1")])
        assert said(link)[0].refused == "r1"
        assert said(link)[0].problem.startswith("this engine cannot reload: set spec.engine.reload")


def test_an_engine_of_several_ranks_does_not_name_a_setting_that_it_could_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several = Slumber(None, Counters(), lambda: None, lambda: None, ranks=2)
    for command in (Sleep(), Reload("r1")):
        several.obey(command)
    assert [one.problem for one in several.changes()] == [
        "this engine cannot sleep: it has 2 ranks, and sleep is not built for several; stop it to free its memory",
        "this engine cannot reload: it has 2 ranks, and new weights in place are not built for several; restart it",
    ]
    monkeypatch.setenv(BY_FLAGS, "1")
    one = Slumber(None, Counters(), lambda: None, lambda: None)
    one.obey(Reload("r1"))
    assert [said.problem for said in one.changes()] == ["this engine cannot reload: set --reload, or restart it"]


def test_a_request_that_leaves_while_it_sleeps_wakes_nobody() -> None:
    words = Words()
    run(words, [Sleep()], [], [Abort("a")])
    assert words.did == ["sleep"]
