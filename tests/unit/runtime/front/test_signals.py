"""Signals that ask a server to end: to its front, its engine, and all of its processes at once."""

import http.client
import os
import signal

import pytest

from graphpod_policy import ExitCode
from graphpod_runtime.base.process.signals import asks_to_end, leave_ending_to_the_parent
from tests.unit.runtime.conftest import ASK_TO_END

from .test_life import Start, Stream


@pytest.mark.parametrize(
    "sent",
    [
        (signal.SIGHUP,),
        (signal.SIGHUP, signal.SIGHUP),
        (signal.SIGTERM, signal.SIGHUP),
        (signal.SIGHUP, signal.SIGTERM),
        (signal.SIGHUP, signal.SIGINT),
    ],
    ids=lambda sent: "-".join(number.name for number in sent),
)
def test_a_terminal_that_closes_has_the_server_drain(own_front: Start, sent: tuple[signal.Signals, ...]) -> None:
    front = own_front()
    stream = Stream(front, max_tokens=2_500)
    events = stream.events()
    next(events)
    for number in sent:
        front.process.send_signal(number)
    *_, last = events
    assert last["choices"][0]["finish_reason"] == "length"
    assert front.ended() == ExitCode.Drained, front.log.read_text()


def test_signals_to_all_processes_of_a_server_have_it_drain(own_front: Start) -> None:
    """As systemd sends them, and a shell."""
    front = own_front()
    stream = Stream(front, max_tokens=2_500)
    events = stream.events()
    next(events)
    for number in ASK_TO_END:
        os.kill(front.engine_pid(), number)
    front.process.terminate()
    *_, last = events
    assert last["choices"][0]["finish_reason"] == "length"
    assert front.ended() == ExitCode.Drained, front.log.read_text()


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_server_at_once(own_front: Start, second: signal.Signals) -> None:
    front = own_front()
    stream = Stream(front)
    next(stream.events())
    front.process.terminate()
    front.eventually("it drains", lambda: "draining: 1 open requests" in front.log.read_text())
    front.process.send_signal(second)
    assert front.ended() == ExitCode.Drained, front.log.read_text()
    assert f"a second signal, {second.name}: 1 open requests are cut" in front.log.read_text()
    with pytest.raises(http.client.IncompleteRead):
        stream.response.read()


def test_a_program_that_nohup_runs_goes_on_when_its_terminal_closes(own_signals: None) -> None:
    assert signal.SIGHUP in asks_to_end()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert signal.SIGHUP not in asks_to_end()


def test_a_process_that_ends_with_another_one_ignores_what_asks_that_to_end(own_signals: None) -> None:
    leave_ending_to_the_parent()
    for number in ASK_TO_END:
        signal.raise_signal(number)
