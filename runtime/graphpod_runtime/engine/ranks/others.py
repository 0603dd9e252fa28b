"""The processes of the other ranks, as the first one sees them: starts them, sends them orders, and sees why one of
them ends or stands still.
"""

import contextlib
import logging
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import zmq

from graphpod_policy import EngineConfig, ExitCode
from graphpod_policy.start.stage_limits import IMPORT, stage_limits
from graphpod_runtime.base.leader import ports_of
from graphpod_runtime.base.process.command import MODULE
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.messages import Beat, Copied, LastWords, Leave, Order, Rouse
from graphpod_runtime.engine.ranks.rank_sockets import FirstEnds
from graphpod_runtime.engine.ranks.roster import Roster
from graphpod_runtime.wire.messages import CRASHES, Fatal
from graphpod_runtime.wire.wakefulness import awake_seconds

log = logging.getLogger("graphpod.engine")

SILENT_SECONDS = 20.0
"""Without a beat of its heart a process stands still: it is stopped, or its host is. While it imports, it has the limit
of that stage: a library that is loaded holds the interpreter, for long on a throttled CPU."""
LOOK_SECONDS = 0.5
CAUSE_SECONDS = 2.0
"""So long after an error of a collective the end of the rank that caused it is seen."""
LAST_WORDS_SECONDS = 0.3
"""After a process has gone, what it has sent arrives within this."""
LEAVE_SECONDS = 3.0
"""Other ranks have so long to end by themselves."""

COMMAND = (*MODULE, "graphpod_runtime.engine.ranks.process")


class Process(Protocol):
    """What it needs of a process; as subprocess.Popen has it."""

    pid: int

    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


Start = Callable[[Meeting, int], Process]
"""Starts the process of a rank, which joins the others there."""


class RankLost(RuntimeError):
    """Another rank has ended or stands still; the message names it. The engine cannot go on."""

    def __init__(self, fatal: Fatal) -> None:
        super().__init__(fatal.message)
        self.fatal = fatal


class Others:
    """All ranks but the first."""

    def __init__(
        self,
        config: EngineConfig,
        folder: Path,
        start: Start | None = None,
        *,
        temporary: bool = False,
        roster: Roster | None = None,
    ) -> None:
        """Starts those of this machine; `folder` is where they meet, `temporary` one goes with them, `roster` has the
        other machines, which have all come. `trouble` is there once a rank has ended or stands still."""
        self.folder, self._temporary, self._roster = folder, temporary, roster
        count, here = config.features.ranks, config.features.ranks // config.features.nodes
        self.meeting = Meeting(folder, roster and roster.leader, here)
        self._parts, self._pipeline = config.features.tensor, config.features.pipeline
        self._ends = FirstEnds(self.meeting, count)
        self._stages = dict.fromkeys(range(1, count), IMPORT)
        self._heard = dict.fromkeys(range(1, count), time.monotonic())
        self._silent = set(range(here, count))
        """Ranks of other machines of which nothing has come yet."""
        self._waits = dict.fromkeys(range(1, count), "")
        self._pools = dict.fromkeys(range(1, count), (0, 0))
        """Of each: slots of its host pool, and parts of it that could not be allocated."""
        self._copied = dict.fromkeys(range(1, count), 0)
        self._moved = dict.fromkeys(range(1, count), (0, 0))
        self._copies_failed: list[str] = []
        self._copies_heard = threading.Condition()
        self._awake, self._ordered = awake_seconds(config.features), 0.0
        """Seconds after the latest order, which was then, until the others sleep."""
        self._import_seconds = stage_limits(config.resolved())[IMPORT]
        path = folder / "engine.json"
        path.write_bytes(config.canonical())
        start = start or partial(started, path)
        self._processes: dict[int, Process] = {rank: start(self.meeting, rank) for rank in range(1, here)}
        self._processes |= roster.away if roster is not None else {}
        self.trouble: Fatal | None = None
        self.awaited = False
        """Whether this rank is in a pass or a start, in which it may wait for the others without end."""
        self._left, self._abandoned = threading.Event(), False
        self._watch = threading.Thread(target=self._watched, name="ranks", daemon=True)
        self._watch.start()

    def send(self, order: Order) -> None:
        """To all of them, in the sequence of calls. Belongs to one thread."""
        self._ordered = time.monotonic()
        self._ends.send(order)

    def rouse(self) -> None:
        """An order is about to be made: those that sleep without one wake up meanwhile. The order itself
        shows that one has gone. Belongs to the same thread."""
        if self._awake and time.monotonic() - self._ordered > self._awake:
            with contextlib.suppress(zmq.Again, BlockingIOError):
                self.send(Rouse())

    def wait_for_trouble(self) -> Fatal | None:
        """Returns when there is trouble, or None when all have left. What all ranks meet alike is this one's own
        affair, which then leaves the others."""
        self._watch.join()
        return None if self.trouble is None or self._left.wait(CAUSE_SECONDS) else self.trouble

    def cause(self) -> Fatal | None:
        """What another rank has met, after an error that may be its doing: it is seen soon."""
        until = time.monotonic() + CAUSE_SECONDS
        while self.trouble is None and time.monotonic() < until:
            time.sleep(LOOK_SECONDS / 5)
        return self.trouble

    def copied(self, number: int) -> str:
        """Returns when all of them have launched the latest copy, `number`, or have said why they could not: their
        words. RankLost where one cannot say anything."""
        with self._copies_heard:
            while min(self._copied.values()) < number:
                self._copies_heard.wait(LOOK_SECONDS)
                if self.trouble is not None:
                    raise RankLost(self.trouble)
            words, self._copies_failed = "; ".join(self._copies_failed), []
            return words

    def moved(self) -> list[tuple[int, int]]:
        """Bytes that each of them has copied to the host, and back."""
        return list(self._moved.values())

    def host_slots(self) -> int:
        """Of the smallest host pool among them."""
        return min(slots for slots, _ in self._pools.values())

    def failed_allocations(self) -> int:
        """Parts of their host pools that could not be allocated."""
        return sum(failed for _, failed in self._pools.values())

    def leave(self) -> None:
        """Lets those that are there leave. How they end from now on is no trouble."""
        if self.trouble is None and not self._left.is_set():
            self._left.set()
            with contextlib.suppress(zmq.Again, BlockingIOError):  # one that never came
                self.send(Leave())

    def close(self) -> None:
        """Ends those that have not left by themselves."""
        until = time.monotonic() + LEAVE_SECONDS
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        self._left.set()
        self._watch.join()
        self.kill()
        self._ends.close()
        if self._roster is not None:
            self._roster.close()
        self.remove_folder()

    def remove_folder(self) -> None:
        """Removes a temporary folder, once all of them have ended."""
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def forsaken(self) -> bool:
        """Whether this rank is without them in the midst of what they did together: its GPU may wait for them."""
        return self._abandoned or self.trouble is not None

    def abandon(self) -> None:
        """Ends all of them, by this rank's own decision."""
        self._abandoned = True
        self._left.set()
        self.kill()

    def kill(self) -> None:
        """Ends all of them; waits for a while, as one that the kernel holds ends later."""
        alive = [process for process in self._processes.values() if process.poll() is None]
        for process in alive:
            process.kill()
        until = time.monotonic() + LEAVE_SECONDS
        for process in alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))

    def _watched(self) -> None:
        while not self._left.is_set() and self.trouble is None:
            self._read(LOOK_SECONDS)
            if self.trouble is None and not self._left.is_set() and (found := self._found()) is not None:
                self._read(LAST_WORDS_SECONDS)
                self.trouble = self.trouble or found

    def _read(self, seconds: float) -> None:
        """The notices that have come; waits so long for the first."""
        for notice in self._ends.notices(seconds):
            match notice:
                case Beat(rank) | Copied(rank) | LastWords(rank) if rank not in self._heard:
                    log.warning("a notice of rank %d, which there is not: a stranger has the port of notices", rank)
                case Beat(rank, heart, waits, slots, failed):
                    self._silent.discard(rank)
                    self._heard[rank], self._stages[rank], self._waits[rank] = time.monotonic(), heart.stage, waits
                    self._pools[rank] = slots, failed
                case Copied(rank, number, why, stored, loaded):
                    with self._copies_heard:
                        self._copied[rank], self._moved[rank] = number, (stored, loaded)
                        self._copies_failed += [f"{self._name(rank)}: {why}"] if why else []
                        self._copies_heard.notify()
                case LastWords(rank, fatal, witness) if self.trouble is None:
                    # The first words name the cause, unless a rank without words was missed by who spoke.
                    words = Fatal(fatal.reason, f"{self._name(rank)}: {fatal.message}", fatal.code)
                    self.trouble = (self._killed() if witness else None) or words

    def _found(self) -> Fatal | None:
        if self._roster is not None and self._roster.gone:
            return Fatal(ExitCode.RankDied.name, self._roster.gone, ExitCode.RankDied)
        for rank, process in self._processes.items():
            if (code := process.poll()) not in (None, ExitCode.Drained):
                how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                return self._died(rank, how, crashed=-code in CRASHES)
            limit = self._import_seconds if self._stages[rank] == IMPORT else SILENT_SECONDS
            if (silent := time.monotonic() - self._heard[rank]) > limit and code is None:
                what = f"stands still at {self._stages[rank]}: no heartbeat for {silent:.0f} s{self._closed(rank)}"
                return Fatal(ExitCode.RankStuck.name, self._said(rank, what), ExitCode.RankStuck)
        return None

    def _closed(self, rank: int) -> str:
        """What may keep a rank of another machine from being heard, of which nothing has come."""
        if rank not in self._silent or self.meeting.leader is None:
            return ""
        first, last = self.meeting.leader.port, self.meeting.leader.port + ports_of(len(self._heard) + 1) - 1
        where = f"ports {first} to {last} of {self.meeting.leader.host}"
        return f", and none before: its machine must reach {where}; open them in firewalls and NetworkPolicies"

    def _killed(self) -> Fatal | None:
        """A rank that a signal has ended: it could not say so."""
        for rank, process in self._processes.items():
            if (code := process.poll()) is not None and code < 0:
                return self._died(rank, f"signal {signal.Signals(-code).name}", crashed=-code in CRASHES)
        return None

    def _name(self, rank: int, of: str = "") -> str:
        stage = f" (stage {rank // self._parts + 1} of {self._pipeline})" if self._pipeline > 1 else ""
        return f"rank {rank}{of}{stage}"

    def _said(self, rank: int, what: str) -> str:
        waits = f"; it waited for {self._waits[rank]}" if self._waits[rank] else ""
        return f"{self._name(rank, f' of {len(self._processes) + 1}')} {what}{waits}"

    def _died(self, rank: int, how: str, *, crashed: bool) -> Fatal:
        what = self._said(rank, f"has ended at {self._stages[rank]}: {how}")
        return Fatal(ExitCode.RankDied.name, what, ExitCode.RankDied, crashed=crashed)


def started(config: Path, meeting: Meeting, rank: int) -> "subprocess.Popen[bytes]":
    """The process of a rank of this machine. It ends with the end of its standard input, which is this process. It logs
    what this process does: a program in Python may want no log."""
    words = [*COMMAND, "--config", str(config), "--folder", str(meeting.folder), "--rank", str(rank)]
    words += ["--log-level", str(log.getEffectiveLevel())]
    if meeting.leader is not None:
        words += ["--leader", str(meeting.leader)]
    return subprocess.Popen(words, stdin=subprocess.PIPE)
