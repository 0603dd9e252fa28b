"""The ranks of a machine that is not the leader's: started when the leader's lets it in, ended when that goes."""

import logging
import select
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from graphpod_policy import EngineConfig, ExitCode, config_hash
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.leader import Leader
from graphpod_runtime.engine.ranks.meeting import Meeting, ranks_of
from graphpod_runtime.engine.ranks.others import LEAVE_SECONDS, Process, Start, started
from graphpod_runtime.engine.ranks.roster import HELLO_SECONDS, SAME, Ended, Greeting, Hello, Line, Welcome
from graphpod_runtime.wire.messages import UNREADABLE, Fatal

log = logging.getLogger("graphpod.engine")

AGAIN_SECONDS = 1.0
"""Between two tries to reach the leader's machine, which may start later."""
STALE_SECONDS = 60.0
"""A machine that refuses this one, or has another key, is asked again for so long: the leader's host name may still
lead to a machine that had its address before."""
SAID_SECONDS = 30.0
LOOK_SECONDS = 0.2
BLAMED_SECONDS = 5.0
"""So long after a rank's end the leader's engine ends by it."""


def work(
    config: EngineConfig,
    folder: Path,
    leader: Leader,
    node: int,
    start: Start | None = None,
    admitted: Callable[[], None] = lambda: None,
) -> Fatal | None:
    """Runs the ranks of machine `node` to their end: None when the leader's engine has let them go, else the cause.
    StartFailure where the leader's does not let this machine in; `admitted` is called when it does. `start`: how
    processes of ranks begin."""
    meeting = Meeting(folder, leader, config.features.ranks // config.features.nodes)
    path = folder / "engine.json"
    path.write_bytes(config.canonical())
    with joined(config, leader, node) as connection:
        admitted()
        line = Line(connection)
        own = ranks_of(node, config.features.nodes, config.features.ranks)
        start = start or partial(started, path)
        processes = {rank: start(meeting, rank) for rank in own}
        try:
            return _watched(line, processes, leader)
        finally:
            for process in processes.values():
                if process.poll() is None:
                    process.kill()


class _Refused(Exception):
    """Who answers does not let this machine in, or is not its leader."""

    def __init__(self, code: ExitCode, why: str, address: str) -> None:
        super().__init__(f"{why} (answered by {address})")
        self.code = code


def joined(config: EngineConfig, leader: Leader, node: int, patience: float = STALE_SECONDS) -> socket.socket:
    """A connection to the leader's machine, which has let this one in; waits for it as long as it takes, and where
    another answers so many seconds in a row, ends with what that one says: StartFailure. The host name is looked up
    for each try.
    """
    mark, said, refused = config_hash(config.canonical()), -SAID_SECONDS, None
    while True:
        try:
            connection = socket.create_connection((leader.host, leader.port), timeout=HELLO_SECONDS)
            try:
                _let_in(connection, node, mark, leader)
            except BaseException:
                connection.close()
                raise
            return connection
        except (_Refused, OSError, *UNREADABLE) as error:
            now = time.monotonic()
            if not isinstance(error, _Refused):
                refused = None
            elif now - (refused := refused if refused is not None else now) >= patience:
                what = f"{error}; if {leader.host} led to a machine of another group, the next start looks it up again"
                raise StartFailure(error.code, what) from error
            if now - said >= SAID_SECONDS:
                log.info("waiting for the leader's machine at %s: %s", leader, error)
                said = now
        time.sleep(AGAIN_SECONDS)


def _let_in(connection: socket.socket, node: int, mark: str, leader: Leader) -> None:
    line, address = Line(connection), connection.getpeername()[0]
    greeting = msgspec.json.decode(_said(line), type=Greeting)
    hello = Hello.of(node, mark, greeting, leader.key)
    line.say(hello)
    welcome = msgspec.json.decode(_said(line), type=Welcome)
    if welcome.refused:
        # with a key, who says so may be any machine: only a leader that lets this one in proves that it has it
        raise _Refused(ExitCode.RankDied if leader.key else ExitCode.ConfigInvalid, welcome.refused, address)
    if not welcome.is_proved(hello, greeting, leader.key):
        what = f"who answers at {leader} does not prove the key of the group: {SAME}"
        raise _Refused(ExitCode.RankDied, what, address)
    connection.settimeout(None)


def _said(line: Line) -> bytes:
    answer = line.heard(HELLO_SECONDS)
    if answer is None:
        raise ConnectionError("it has closed the connection")
    return answer


def _watched(line: Line, processes: dict[int, Process], leader: Leader) -> Fatal | None:
    running, blamed, until = dict(processes), None, float("inf")
    while running and time.monotonic() < until:
        readable, _, _ = select.select([line.connection], [], [], LOOK_SECONDS)
        for rank, process in list(running.items()):
            if (code := process.poll()) is None:
                continue
            del running[rank]
            if code != ExitCode.Drained and blamed is None:
                blamed, until = _ended(rank, code), min(until, time.monotonic() + BLAMED_SECONDS)
            _say(line, Ended(rank, code))
        if readable and line.heard() is None:  # the leader's says nothing more
            if blamed is None and not _left(running):
                what = f"the leader's machine, {leader}, has gone or its engine has ended; its log has the cause"
                return Fatal(ExitCode.RankDied.name, what, ExitCode.RankDied)
            return blamed
    return blamed


def _left(running: dict[int, Process]) -> bool:
    """Whether all ranks leave by themselves: the leader's engine has ended as it should."""
    until = time.monotonic() + LEAVE_SECONDS
    while time.monotonic() < until and any(process.poll() is None for process in running.values()):
        time.sleep(LOOK_SECONDS / 2)
    return all(process.poll() == ExitCode.Drained for process in running.values())


def _ended(rank: int, code: int) -> Fatal:
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    reason = ExitCode(code) if code in set(ExitCode) else ExitCode.RankDied
    return Fatal(reason.name, f"rank {rank} has ended: {how}; the leader's machine has the cause", reason)


def _say(line: Line, ended: Ended) -> None:
    try:
        line.say(ended)
    except OSError as error:
        log.info("the leader's machine does not hear that rank %d has ended: %s", ended.rank, error)
