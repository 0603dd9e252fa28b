"""The last `/warmup` answers of all pods, and when each is asked again.

A reading counts only if it names the pod's uid and the configuration hash of the pod's template. Anything else is
`NoReading`, with the cause. A terminal reading is kept for its (pod, container) and not asked for again until the
container restarts or a resync asks.

A reconcile does not wait for a pod that is slow to answer: it goes on with what is known, and the answer, when it
comes, puts the key into the queue again. So a silent pod holds up no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from pydantic import ValidationError

from graphpod_operator.cache.key import Key
from graphpod_operator.cache.pod import Pod
from graphpod_operator.observe.warmup_report import Answer, NoReading, Reading
from graphpod_operator.telemetry.label_values import Missing

CONCURRENCY = 32
"""Reads that run at a time. Pods that gave no reading last time have as many of their own, to hold up no other
reads."""
PATIENCE = 0.2
"""Seconds a reconcile waits for the reads it asked for."""
POLL_SECONDS = 2.0
"""Between two reads of a warm-up that has not ended."""
SOON_POLL_SECONDS = 0.5
"""The same after a miss that may be one of chance."""
SLOW_POLL_SECONDS = 8.0
"""The same once an admin port did not answer for a while: with the read itself 10 s, within which status agrees."""
SLOW_AFTER = 15
"""Misses in a row that are a while."""
WEIGHTS_POLL_SECONDS = 0.5
WEIGHTS_POLL_MOST = 30.0
"""Between two reads of a pod whose weights are on their way, or that was sent an order about them: doubled each time,
up to the second number. Open requests end first, so that may take as long as an answer does."""
SCRAPE_POLL_SECONDS = 30.0
SCRAPE_POLL_MOST = 300.0
"""Between two reads of a pod whose warm-up has ended, while no Prometheus is known to scrape its service: doubled each
time, up to the second number."""


class Unreachable(Exception):
    """The admin port gave no answer in time, or one that is no warm-up report; the message says which."""


class AdminPort(Protocol):
    """The pods' admin ports, as the operator reaches them."""

    async def warmup(self, pod: Pod) -> bytes:
        """The body of `/warmup`. Raises Unreachable."""
        ...


def read_again(answers: Iterable[Answer]) -> float | None:
    """Seconds until the warm-ups are read again: few while one is under way, more while one does not answer; None when
    all have ended.
    """
    return min((pause for answer in answers if (pause := _pause(answer)) is not None), default=None)


def _pause(answer: Answer) -> float | None:
    if isinstance(answer, Reading):
        return None if answer.terminal else POLL_SECONDS
    if answer.is_borne:
        return SOON_POLL_SECONDS
    return POLL_SECONDS if answer.misses < SLOW_AFTER else SLOW_POLL_SECONDS


def answers(pod: Pod) -> bool:
    """Whether a pod is one to ask."""
    return pod.running and bool(pod.ip) and not pod.deleting and pod.answers_requests


@dataclass(slots=True)
class _Asked:
    """What is known of one container of a pod."""

    container: str
    answer: Answer | None = None
    read: asyncio.Task[Answer] | None = None
    """Under way, or ended after the reconcile that asked for it."""
    missing_since: float = 0.0
    """When the first of its misses in a row was taken in."""
    look_again: float = 0.0
    """When it is read again to see whether a Prometheus scrapes it."""
    looks: int = 0
    """Reads since its warm-up ended."""
    ready: bool = False
    """Whether its pod was, at the last look."""
    weights_at: float | None = None
    """When it is read again for its weights; None: they stay where they are."""
    weights_reads: int = 0
    """Such reads in a row."""
    is_stale: bool = False
    """The read under way began before the last order."""

    @property
    def has_ended(self) -> bool:
        """Whether its warm-up has."""
        return isinstance(self.answer, Reading) and self.answer.terminal

    @property
    def is_scraped(self) -> bool:
        """Whether a Prometheus read its metrics, as far as is known."""
        scrapes = self.answer.scrapes if isinstance(self.answer, Reading) else None
        return scrapes is not None and scrapes.recent

    def take(self, now: float) -> None:
        """Take in the read, if it has ended. `now` is in seconds of any clock that only goes forward."""
        if self.read is None or not self.read.done():
            return
        read, self.read = self.read, None  # an unexpected error is raised once; then the pod is read again
        answer = read.result()
        if isinstance(answer, NoReading):
            if self.has_ended:
                return
            misses = self.answer.misses + 1 if isinstance(self.answer, NoReading) else 1
            self.missing_since = now if misses == 1 else self.missing_since
            answer = replace(answer, misses=misses, seconds=now - self.missing_since)
        elif answer.weights_stay and not self.is_stale:
            self.weights_at, self.weights_reads = None, 0
        elif self.weights_at is None:
            self.follow(now)
        self.answer, self.is_stale = answer, False

    def follow(self, now: float) -> None:
        """Its weights are on their way, or may be: it is read again soon, and later each time."""
        self.weights_at = now + min(WEIGHTS_POLL_SECONDS * 2**self.weights_reads, WEIGHTS_POLL_MOST)
        self.weights_reads = min(self.weights_reads + 1, 8)

    def moves(self, pod: Pod, now: float) -> bool:
        """Whether it is to be read for its weights: their time has come, or its pod is ready where they were away, or
        not ready any more.
        """
        turned, self.ready = pod.ready != self.ready, pod.ready
        if not isinstance(self.answer, Reading) or not self.has_ended:
            return False
        if turned and self.weights_at is None and not (pod.ready and self.answer.serves):
            self.weights_at = now
        if self.weights_at is None or self.weights_at > now:
            return False
        self.follow(now)
        return True

    def begin(self, read: asyncio.Task[Answer], now: float) -> None:
        """A read begins. The next look for a scrape comes later, whatever becomes of this one."""
        self.read = read
        self.look_again = now + min(SCRAPE_POLL_SECONDS * 2**self.looks, SCRAPE_POLL_MOST)
        self.looks = min(self.looks + self.has_ended, 8)


class Warmups:
    """The last answers of all pods. `answered` is called for every service that went on without an answer that came."""

    def __init__(
        self,
        port: AdminPort,
        answered: Callable[[Key], None] = lambda key: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._port = port
        self._clock = clock
        self._answered = answered
        self._pods: dict[str, _Asked] = {}
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._doubtful = asyncio.Semaphore(CONCURRENCY)

    async def read(self, pods: Iterable[Pod], *, again: bool = False, scrapes: bool = False) -> dict[str, Answer]:
        """The last answer of each running pod, by pod uid; none for a pod that has not answered yet.

        Terminal readings come from memory, unless `again`: then they are confirmed, and kept if the pod does not
        answer. `scrapes`: whether a Prometheus reads the pods matters, so those that are due are read again, too.
        """
        found = [(pod, self._start(pod, again)) for pod in pods if answers(pod)]
        if scrapes and not any(one.is_scraped for _, one in found):
            now = self._clock()
            found = [(pod, self._start(pod, one.has_ended and one.look_again <= now)) for pod, one in found]
        if waited := [asked.read for _, asked in found if asked.read is not None]:
            await asyncio.wait(waited, timeout=PATIENCE)
        now = self._clock()
        for pod, asked in found:
            asked.take(now)
            if asked.read is not None:
                asked.read.add_done_callback(partial(self._tell, pod.key))
        return {pod.uid: asked.answer for pod, asked in found if asked.answer is not None}

    def scrape_pause(self, pods: Iterable[Pod]) -> float | None:
        """Seconds until `read` with `scrapes` reads a pod again; None once a Prometheus scrapes one."""
        ended = [one for pod in pods if answers(pod) and (one := self._pods.get(pod.uid)) and one.has_ended]
        if not ended or any(one.is_scraped for one in ended):
            return None
        return max(0.0, min(one.look_again for one in ended) - self._clock())

    def ordered(self, uid: str) -> None:
        """The pod was sent an order about its weights."""
        if (asked := self._pods.get(uid)) is not None:
            asked.is_stale, asked.weights_reads = asked.read is not None, 0
            asked.follow(self._clock())

    def weights_pause(self, pods: Iterable[Pod]) -> float | None:
        """Seconds until a pod is read again for its weights; None while they stay."""
        known = (self._pods.get(pod.uid) for pod in pods if answers(pod))
        due = [one.weights_at for one in known if one is not None and one.weights_at is not None]
        return max(0.0, min(due) - self._clock()) if due else None

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._pods.pop(uid, None)

    def _start(self, pod: Pod, again: bool) -> _Asked:
        """Ask the pod, unless its warm-up has ended or a read of it is still to be taken in."""
        asked = self._pods.get(pod.uid)
        if asked is None or asked.container != pod.container:
            asked = self._pods[pod.uid] = _Asked(pod.container, ready=pod.ready)
        again = asked.moves(pod, self._clock()) or again
        if asked.read is None and (again or not asked.has_ended):
            slots = self._doubtful if isinstance(asked.answer, NoReading) else self._slots
            asked.begin(asyncio.create_task(self._ask(pod, slots)), self._clock())
        return asked

    def _tell(self, key: Key | None, _: asyncio.Task[Answer]) -> None:
        if key is not None:
            self._answered(key)

    async def _ask(self, pod: Pod, slots: asyncio.Semaphore) -> Answer:
        try:
            async with slots:
                body = await self._port.warmup(pod)
            reading = Reading.model_validate_json(body)
        except Unreachable as error:
            return NoReading(Missing.Unreachable, str(error))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            what = ".".join(str(part)[:64] for part in first["loc"]), first["msg"].removeprefix("Value error, ")
            said = ": ".join(filter(None, what))
            return NoReading(Missing.Mismatch, f"pod {pod.name} answered without a warm-up report: {said}")
        if (reading.pod_uid, reading.config_hash) != (pod.uid, pod.config_hash):
            return NoReading(
                Missing.Mismatch,
                f"the admin address of pod {pod.name} answered for pod uid {reading.pod_uid}, "
                f"configuration {reading.config_hash}, not for {pod.uid}, {pod.config_hash}",
            )
        return reading
