"""Long-lived programs: started detached, known by more than their pid, ended for certain."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from testbed.errors import TestbedError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Identity:
    """One process for ever: a pid alone may be given to another program once its owner is gone."""

    pid: int
    started: int  # clock ticks after boot, /proc/PID/stat field 22
    boot: str


def parse_stat(text: str) -> tuple[bool, int]:
    """(whether it is dead, start time in ticks) of a /proc/PID/stat line. The command in parentheses may hold anything.

    A zombie is dead, unless it is only the first of several threads: the others of a process that was killed may still
    be ending, and hold its sockets until they have.
    """
    state, *fields = text.rpartition(")")[2].split()
    threads, started = int(fields[16]), int(fields[18])
    return state == "X" or (state == "Z" and threads <= 1), started


def identify(pid: int) -> Identity | None:
    """The living process behind `pid`, or None."""
    with suppress(ChildProcessError):  # somebody else's child: init reaps it
        os.waitpid(pid, os.WNOHANG)  # our own would stay as a zombie
    try:
        dead, started = parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if dead else Identity(pid, started, boot())


@cache
def boot() -> str:
    return BOOT_ID.read_text().strip()


def alive(identity: Identity) -> bool:
    return identify(identity.pid) == identity


def rss_bytes(identity: Identity) -> int:
    """Resident memory; 0 when the process is gone."""
    if not alive(identity):
        return 0
    try:
        return int(Path(f"/proc/{identity.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def spawn(argv: Sequence[str | Path], log: Path, env: dict[str, str] | None = None) -> Identity:
    """Starts `argv` in a session of its own, both outputs appended to `log`."""
    words = [str(a) for a in argv]
    program = shutil.which(words[0])
    if program is None:
        raise TestbedError(f"{words[0]} is not installed: run `python3 -m testbed build`, it installs it")
    log.parent.mkdir(parents=True, exist_ok=True)
    files = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        # the caller's locks and pipes: whoever waits for their end would wait for ours
        *((os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable()),
    ]
    pid = os.posix_spawn(program, words, env or dict(os.environ), file_actions=files, setsid=True)
    identity = identify(pid)
    if identity is None:
        raise TestbedError(f"{words[0]} ended at once\n{tail(log)}")
    return identity


def _inheritable() -> list[int]:
    """Open descriptors beyond the three standard ones that a new program would get."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists this folder is closed by now
            if int(entry.name) > 2 and os.get_inheritable(int(entry.name)):
                found.append(int(entry.name))
    return found


def send(identity: Identity, sig: signal.Signals) -> None:
    """Signals that very process; nothing when it is gone. The descriptor pins the pid between check and signal."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    try:
        if alive(identity):
            signal.pidfd_send_signal(descriptor, sig)
    except ProcessLookupError:
        return  # it ended by itself in between
    finally:
        os.close(descriptor)


def kill_all(find: Callable[[], Iterable[Identity]], limit: float = 20.0) -> int:
    """Kills what `find` names until it names no process, since the found may start others meanwhile. Returns how
    many."""
    seen: set[Identity] = set()
    deadline = time.monotonic() + limit
    while left := [p for p in find() if alive(p)]:
        if time.monotonic() > deadline:
            pids = ", ".join(str(p.pid) for p in left)
            raise TestbedError(
                f"processes {pids} are alive {limit:.0f} s after SIGKILL: look at them with `ps -fp {pids}`"
            )
        for identity in left:
            send(identity, signal.SIGKILL)
        seen.update(left)
        time.sleep(0.02)
    return len(seen)


def tail(log: Path, lines: int = 20) -> str:
    """The end of a log, indented, with its path: what an error shows."""
    if not log.exists():
        return f"  (no log at {log})"
    text = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"  last lines of {log}:", *(f"    {line}" for line in text or ["(empty)"])])


def wait_until(what: str, ready: Callable[[], bool], process: Identity, log: Path, limit: float) -> float:
    """Seconds until `ready()`. Fails, with the log's tail, after `limit` s or as soon as `process` is dead."""
    began = time.monotonic()
    while not ready():
        if not alive(process):
            raise TestbedError(f"{what}: the process ended\n{tail(log)}")
        if time.monotonic() - began > limit:
            raise TestbedError(f"{what}: not within {limit:.0f} s\n{tail(log)}")
        time.sleep(0.05)
    return time.monotonic() - began
