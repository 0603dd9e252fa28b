"""When an engine sleeps: on command, or after a time without requests; and what it says of it.

Commands wait until no request is open. A request that comes while the engine sleeps wakes it, and waits meanwhile: who
does not want that keeps requests away, as the front does after a command to sleep.
"""

import logging
import os
import time
from collections.abc import Callable
from typing import Protocol

from graphpod_policy.start.flags import in_own_words
from graphpod_runtime.base.progress import OnProgress
from graphpod_runtime.engine.sleep.problems import CannotReload, CannotSleep, CannotWake
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.messages import Reload, Residence, Sleep, Wake

log = logging.getLogger("graphpod.engine")

SECONDS = "graphpod_sleep_transition_duration_seconds"
FAILURES = "graphpod_sleep_failures_total"


class Sleeper(Protocol):
    """What it needs of `engine.sleep.sleeper.Sleeper`."""

    asleep: bool

    @property
    def source(self) -> str | None: ...
    @property
    def sleeps(self) -> bool: ...
    @property
    def reloads(self) -> bool: ...
    @property
    def current(self) -> bool: ...
    def sleep(self, read: OnProgress) -> int: ...
    def wake(self, read: OnProgress) -> None: ...
    def reload(self, read: OnProgress) -> None: ...


class Slumber:
    """The wishes of one engine's loop, and their fulfilment."""

    def __init__(
        self,
        sleeper: Sleeper | None,
        counters: Counters,
        forget: Callable[[], None],
        beat: OnProgress,
        idle_seconds: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        ranks: int = 1,
    ) -> None:
        """`forget` empties the prefix cache. `idle_seconds` without requests make the engine sleep; None: only a
        command does. A None `sleeper` refuses every command.
        """
        self._sleeper, self._counters, self._forget, self._beat = sleeper, counters, forget, beat
        self._ranks = ranks
        self._idle_seconds, self._clock = idle_seconds, clock
        self._asked = False
        """A command wants it to sleep."""
        self._changed = clock()
        """When it began, or weights came back last: idle seconds count from then on at the earliest."""
        self._gave_up: float | None = None
        """Since when no request had been open when it could not sleep: it is not tried again before the next one."""
        self._revision: str | None = None
        """That of the command to reload which has not been obeyed yet."""
        self._changes: list[Residence] = []
        self.said = Residence()
        if sleeper is None:
            return
        transitions = ["reload"] if sleeper.reloads else []
        if sleeper.sleeps:
            counters.set("graphpod_asleep", 0)
            counters.set("graphpod_sleep_freed_bytes", 0)
            transitions += ["sleep", "wake"]
        for transition in transitions:  # a rate needs a sample before the first event
            counters.add(FAILURES, 0, transition=transition)
            counters.observer(SECONDS, transition=transition)

    @property
    def asleep(self) -> bool:
        """Whether the weights are off the device."""
        return self._sleeper is not None and self._sleeper.asleep

    def obey(self, command: Sleep | Wake | Reload) -> None:
        """Notes what is to happen when no request is open."""
        what = "reload" if isinstance(command, Reload) else "sleep"
        can = self._sleeper is not None and (self._sleeper.reloads if what == "reload" else self._sleeper.sleeps)
        if self._sleeper is None or not can:
            problem = f"this engine cannot {what}: {_why(what, self._ranks)}"
            self._say(problem=problem, refused=_revision(command))
            return
        match command:
            case Sleep():
                self._asked = True
                if self.asleep:
                    self._say(asleep=True, idle=False)
            case Wake():
                self._asked = False
                if self.asleep:
                    self.awaken()
                else:
                    self._say()
            case Reload() if self._sleeper.current:
                # A start, or a reload by another name, has read these files: no request waits for what is there.
                self._say(revision=command.revision)
            case Reload():
                self._revision = command.revision

    def rest(self, since: float) -> None:
        """No request is open, since that time of the clock."""
        if self._sleeper is None:
            return
        if self._revision is not None:
            self._reload(self._sleeper, self._revision)
        if self.asleep or not (self._asked or self._idle_for(since)):
            return
        if not self._fall_asleep(self._sleeper):
            self._gave_up = since

    def awaken(self) -> str | None:
        """Brings the weights back before a request, if they are away; why that could not be."""
        if self._sleeper is None or not self._sleeper.asleep:
            return None
        began = self._clock()
        try:
            self._sleeper.wake(self._beat)
        except CannotWake as error:
            self._failed("wake", str(error))
            return str(error)
        self._woke(self._clock() - began)
        return None

    def changes(self) -> list[Residence]:
        """What was not said yet."""
        said, self._changes = self._changes, []
        return said

    def _idle_for(self, since: float) -> bool:
        """Whether it is to sleep for want of requests, which it had last at `since`."""
        if self._idle_seconds is None or self._sleeper is None or not self._sleeper.sleeps or self._gave_up == since:
            return False
        return self._clock() - max(since, self._changed) >= self._idle_seconds

    def _fall_asleep(self, sleeper: Sleeper) -> bool:
        """Whether it sleeps now."""
        began, asked = self._clock(), self._asked
        self._forget()
        try:
            freed = sleeper.sleep(self._beat)
        except CannotSleep as error:
            self._asked = False
            self._failed("sleep", str(error))
            return False
        seconds = self._clock() - began
        self._counters.set("graphpod_asleep", 1)
        self._counters.set("graphpod_sleep_freed_bytes", freed)
        self._counters.observe(SECONDS, seconds, transition="sleep")
        source = sleeper.source or ""
        self._say(asleep=True, idle=not asked, source=str(source), freed_bytes=freed, sleep_seconds=seconds)
        log.info("asleep: %d bytes freed in %.2f s; weights come back from %s", freed, seconds, source)
        return True

    def _woke(self, seconds: float) -> None:
        self._changed = self._clock()
        self._counters.set("graphpod_asleep", 0)
        self._counters.observe(SECONDS, seconds, transition="wake")
        self._say(asleep=False, idle=False, wake_seconds=seconds)
        log.info("awake after %.2f s", seconds)

    def _reload(self, sleeper: Sleeper, revision: str) -> None:
        began, self._revision = self._clock(), None
        self._forget()
        try:
            sleeper.reload(self._beat)
        except (CannotReload, CannotWake) as error:
            self._failed("reload", str(error), refused=revision)
            return
        self._changed = self._clock()
        seconds = self._changed - began
        if sleeper.sleeps:
            self._counters.set("graphpod_asleep", 0)
        self._counters.observe(SECONDS, seconds, transition="reload")
        self._say(asleep=False, idle=False, revision=revision)
        log.info("weights of revision %s are in their places after %.2f s, and checked", revision, seconds)

    def _failed(self, transition: str, problem: str, refused: str = "") -> None:
        self._counters.add(FAILURES, transition=transition)
        self._say(problem=problem, refused=refused)
        log.warning("cannot %s: %s", transition, problem)

    def _say(self, **changed: object) -> None:
        fresh: dict[str, object] = {"problem": "", "refused": ""}
        values = {name: getattr(self.said, name) for name in Residence.__struct_fields__}
        self.said = Residence(**{**values, **fresh, **changed})
        self._changes.append(self.said)


WHY = {
    "sleep": "set spec.engine.sleep: true",
    "reload": "set spec.engine.reload: true, or restart it",
}
WHY_NOT_BY_RANKS = {
    "sleep": "sleep is not built for several; stop it to free its memory",
    "reload": "new weights in place are not built for several; restart it",
}


def _why(what: str, ranks: int) -> str:
    """Why an engine of so many ranks does not have it, and what to do."""
    return f"it has {ranks} ranks, and {WHY_NOT_BY_RANKS[what]}" if ranks > 1 else in_own_words(WHY[what], os.environ)


def _revision(command: Sleep | Wake | Reload) -> str:
    return command.revision if isinstance(command, Reload) else ""
