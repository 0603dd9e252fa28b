"""POST /sleep, /wake and /reload of the admin port: from a request to a command to the engine, and to its answer.

While weights are away by command, leave or are replaced, requests get 503 with Retry-After and the pod is not ready, so
that balancers choose another one. Requests that are open end first. A request that comes after /wake waits in the
engine until the weights are back. An engine that sleeps for want of requests stays ready, and its next request waits.
"""

import asyncio
import threading
from collections.abc import Callable

from graphpod_runtime.front.status import Change, Status
from graphpod_runtime.wire.messages import Command, Reload, Residence, Sleep, Wake

MOST_WAIT_SECONDS = 600.0
MOST_REVISION = 253
"""Characters of a revision: as many as the value of an annotation that others read needs."""


class NotNow(Exception):
    """The engine has not started, has died, or another change is on its way."""


class Sleeping:
    """Commands come from the admin port's thread; everything else runs on the front's loop."""

    def __init__(self, status: Status, send: Callable[[Command], None]) -> None:
        """`send` belongs to the front's loop, which `serve` gives."""
        self._status, self._send = status, send
        self._loop: asyncio.AbstractEventLoop | None = None
        self._said = threading.Condition()
        self._answers = 0

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Takes commands from now on."""
        self._loop = loop

    async def change(self, what: Change, revision: str = "", wait: float = 0.0) -> bool:
        """Asks for it, and waits so many seconds for the end; whether that has come. NotNow where it cannot be asked
        for."""
        if self._loop is None or not self._status.started or not self._status.engine_alive or self._status.draining:
            raise NotNow(f"the engine does not serve (warm-up: {self._status.state})")
        asked = asyncio.run_coroutine_threadsafe(self._ask(what, revision), self._loop)
        number = await asyncio.wrap_future(asked)
        return await asyncio.to_thread(self._wait, number, min(wait, MOST_WAIT_SECONDS))

    def heard(self, residence: Residence) -> None:
        """The engine has obeyed or refused a command, or has fallen asleep or woken by itself."""
        status = self._status
        status.residence = residence
        done = {
            Change.Sleep: bool(residence.problem),
            Change.Wake: not residence.asleep or bool(residence.problem),
            Change.Reload: True,
            None: False,
        }
        if done[status.change]:
            # An engine that could not wake or reload is as it was: asleep by command, it still keeps requests away.
            status.change = Change.Sleep if residence.asleep and not residence.idle else None
        with self._said:
            self._answers += 1
            self._said.notify_all()

    async def _ask(self, what: Change, revision: str) -> int:
        status = self._status
        if status.change in (Change.Wake, Change.Reload) and status.change is not what:
            raise NotNow(f"the engine is {status.sleep_state}")
        status.change = what
        with self._said:
            number = self._answers
        commands: dict[Change, Command] = {
            Change.Sleep: Sleep(),
            Change.Wake: Wake(),
            Change.Reload: Reload(revision),
        }
        self._send(commands[what])
        return number

    def _wait(self, number: int, seconds: float) -> bool:
        with self._said:
            return self._said.wait_for(lambda: self._answers > number, seconds)
