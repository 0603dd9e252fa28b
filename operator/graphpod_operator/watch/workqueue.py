"""The queue of keys, with the promises of client-go's: a key waits at most once, is never worked on twice at the same
time, and comes back if it was added while being worked on.

Keys of what a user has just asked for go before those that come back because something was reported: of four that are
taken, three are such ones while there are any, so that neither waits for the other's end.

A failed key returns after a pause that doubles from 1 s to 5 min, with jitter. Where the API server did not answer in
time, it is at work on that request still, and its own reports would bring the key back sooner each time: such a key
*rests*, and only its user, or `wake`, brings it back before the pause ends. All state changes happen between two
awaits of one event loop, so there is no lock.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable

from graphpod_operator.cache.key import Key

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 300.0
BEFORE_OTHERS = 3
"""So many keys in a row may go before one that waits longer."""
JITTER = 0.1
"""Part of a pause that is random, so that keys which failed together do not return together."""


class KeyQueue:
    """Deduplicating queue of keys. `added` is called for every key that enters, `waited` with the seconds that one has
    been in it when it is taken.
    """

    def __init__(
        self, added: Callable[[], None] = lambda: None, waited: Callable[[float], None] = lambda seconds: None
    ) -> None:
        self._waiting: deque[Key] = deque()
        self._first: deque[Key] = deque()
        self._asked: set[Key] = set()
        """Dirty keys that go first."""
        self._before = 0
        """How many went first in a row while others waited."""
        self._dirty: dict[Key, float] = {}
        self._busy: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._resting: set[Key] = set()
        """Keys that wait for their timer, whatever is reported."""
        self._arrival = asyncio.Event()
        self._added = added
        self._waited = waited

    def add(self, key: Key, *, first: bool = False) -> None:
        """Put a key in, once; a key being worked on enters again when its work ends. `first`: a user waits for it, also
        where it is in already for another reason.
        """
        if key in self._resting and key in self._timers and not first:
            return
        self._enter(key, first)

    def _enter(self, key: Key, first: bool = False) -> None:
        self._resting.discard(key)
        self._cancel_timer(key)
        promoted = first and key not in self._asked
        if first:
            self._asked.add(key)
        if key not in self._dirty:
            self._dirty[key] = asyncio.get_running_loop().time()
            self._added()
            if key not in self._busy:
                self._line_up(key)
        elif promoted and key not in self._busy:
            self._waiting.remove(key)
            self._line_up(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Put a key in later; of two times the earlier counts."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + seconds:
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_later(seconds, self._enter, key)

    def add_failed(self, key: Key, *, rests: bool = False) -> float:
        """Put a key in after the pause its failures have earned; the pause in seconds. `rests`: not sooner, but for its
        user, who may have asked already.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures, 16))
        pause *= 1 - JITTER * random.random()
        self.add_after(key, pause)
        if rests and key not in self._asked:
            self._resting.add(key)
            self._dirty.pop(key, None)
        return pause

    def wake(self) -> None:
        """The API server answers again: keys that rest enter at once."""
        for key in tuple(self._resting):
            self._enter(key)

    def add_conflicted(self, key: Key) -> None:
        """Put a key in whose work met a newer object than it knew: at once the first time, then as one that failed."""
        if key in self._failures:
            self.add_failed(key)
        else:
            self._failures[key] = 1
            self.add(key)

    def forget(self, key: Key) -> None:
        """The key succeeded: its next failure counts as the first."""
        self._failures.pop(key, None)
        self._resting.discard(key)

    async def take(self) -> Key:
        """The next key; the caller must call `done` with it."""
        # work that finds nothing to do waits for nothing: thousands of keys in a row would hold up watches and Lease
        await asyncio.sleep(0)
        while not self.depth:
            self._arrival.clear()
            await self._arrival.wait()
        if self._first and (self._before < BEFORE_OTHERS or not self._waiting):
            key = self._first.popleft()
            self._before = self._before + 1 if self._waiting else 0
        else:
            key = self._waiting.popleft()
            self._before = 0
        self._asked.discard(key)
        now = asyncio.get_running_loop().time()
        self._waited(now - self._dirty.pop(key))
        self._busy[key] = now
        return key

    def done(self, key: Key) -> None:
        """The work on a key ended."""
        del self._busy[key]
        if key in self._dirty:
            self._line_up(key)

    @property
    def depth(self) -> int:
        """Keys that wait for a worker."""
        return len(self._waiting) + len(self._first)

    @property
    def active(self) -> int:
        """Keys being worked on."""
        return len(self._busy)

    def busy_seconds(self) -> list[float]:
        """What each work in progress has taken."""
        if not self._busy:
            return []
        now = asyncio.get_running_loop().time()
        return [now - began for began in self._busy.values()]

    def longest_busy(self) -> float:
        """Seconds the slowest work in progress has taken; 0 without any."""
        return max(self.busy_seconds(), default=0.0)

    def _line_up(self, key: Key) -> None:
        (self._first if key in self._asked else self._waiting).append(key)
        self._arrival.set()

    def _cancel_timer(self, key: Key) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
