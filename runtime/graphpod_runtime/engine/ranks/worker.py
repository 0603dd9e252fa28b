"""The ranks of a machine that is not the leader's: they begin when all machines are there, and end with that one."""

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
from graphpod_runtime.base.files.model_sample import sample_of
from graphpod_runtime.base.leader import Leader
from graphpod_runtime.engine.ranks.meeting import Meeting, ranks_of
from graphpod_runtime.engine.ranks.others import Process, Start, started
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
LET_GO_SECONDS = 5.0
"""Ranks that the leader's engine has let go end within this, or they were not let go."""
BLAMED_SECONDS = 5.0
"""So long after a rank's end the leader's engine ends by it. A machine that ended before would end its group, and the
leader's with it, before that has reported the cause.
"""


def work(
    config: EngineConfig,
    folder: Path,
    leader: Leader,
    node: int,
    start: Start | None = None,
    begins: Callable[[], None] = lambda: None,
) -> Fatal | None:
    """Runs the ranks of machine `node` to their end: None when the leader's engine has let them go, else the cause.
    StartFailure where the leader's does not let this machine in. `start`: how processes of ranks begin, in front of
    which `begins` is called."""
    meeting = Meeting(folder, leader, config.features.ranks // config.features.nodes)
    path = folder / "engine.json"
    path.write_bytes(config.canonical())
    with _complete(config, leader, node) as line:
        begins()
        own = ranks_of(node, config.features.nodes, config.features.ranks)
        start = start or partial(started, path)
        processes = {rank: start(meeting, rank) for rank in own}
        try:
            return _watched(line, processes, leader)
        finally:
            for process in processes.values():
                if process.poll() is None:
                    process.kill()


def _complete(config: EngineConfig, leader: Leader, node: int) -> Line:
    """A connection as `joined` has it, over which the leader's has said that all machines have come. Where it goes
    before that, nothing has begun, and this machine joins the next one.
    """
    while True:
        line = joined(config, leader, node)
        if line.heard() is not None:
            return line
        line.connection.close()
        log.info("the leader's machine, %s, has gone before all have come: this one waits for the next", leader)
        time.sleep(AGAIN_SECONDS)


class _Refused(Exception):
    """Who answers does not let this machine in, or is not its leader."""

    def __init__(self, code: ExitCode, why: str, address: str) -> None:
        super().__init__(f"{why} (answered by {address})")
        self.code = code


def joined(config: EngineConfig, leader: Leader, node: int, patience: float = STALE_SECONDS) -> Line:
    """A connection to the leader's machine, which has let this one in; waits for it as long as it takes, and where
    another answers so many seconds in a row, ends with what that one says: StartFailure. The host name is looked up
    for each try.
    """
    mark, said, refused = config_hash(config.canonical()), -SAID_SECONDS, None
    model = sample_of(Path(config.model.path))
    while True:
        try:
            connection = socket.create_connection((leader.host, leader.port), timeout=HELLO_SECONDS)
            line = Line(connection)
            try:
                _let_in(line, node, mark, leader, model)
            except BaseException:
                connection.close()
                raise
            return line
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


def _let_in(line: Line, node: int, mark: str, leader: Leader, model: str) -> None:
    address = line.connection.getpeername()[0]
    greeting = msgspec.json.decode(_said(line), type=Greeting)
    hello = Hello.of(node, mark, greeting, leader.key, model)
    line.say(hello)
    welcome = msgspec.json.decode(_said(line), type=Welcome)
    if welcome.refused:
        # with a key, who says so may be any machine: only a leader that lets this one in proves that it has it
        raise _Refused(ExitCode.RankDied if leader.key else ExitCode.ConfigInvalid, welcome.refused, address)
    if not welcome.is_proved(hello, greeting, leader.key):
        what = f"who answers at {leader} does not prove the key of the group: {SAME}"
        raise _Refused(ExitCode.RankDied, what, address)
    line.connection.settimeout(None)


def _said(line: Line) -> bytes:
    answer = line.heard(HELLO_SECONDS)
    if answer is None:
        raise ConnectionError("it has closed the connection")
    return answer


def _watched(line: Line, processes: dict[int, Process], leader: Leader) -> Fatal | None:
    running, blamed, until = dict(processes), None, float("inf")
    while (running or blamed is not None) and time.monotonic() < until:
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
                what = f"the leader's machine, {leader}, has gone or cannot be reached, or its engine has ended"
                return Fatal(ExitCode.RankDied.name, what, ExitCode.RankDied)
            return blamed
    return blamed


def _left(running: dict[int, Process]) -> bool:
    """Whether all ranks leave by themselves: the leader's engine has ended as it should."""
    until = time.monotonic() + LET_GO_SECONDS
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
