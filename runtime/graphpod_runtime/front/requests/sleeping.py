"""POST /sleep, /wake and /reload of the admin port: from a request to a command to the engine, and to its answer.

While weights are away by command, leave or are replaced, requests get 503 with Retry-After and the pod is not ready, so
that balancers choose another one. Requests that are open end first. A request that comes after /wake waits in the
engine until the weights are back. An engine that sleeps for want of requests stays ready, and its next request waits.
"""

import asyncio
from collections.abc import Callable

from graphpod_runtime.front.status import Change, Status
from graphpod_runtime.wire.messages import Command, Reload, Residence, Sleep, Wake

MOST_WAIT_SECONDS = 600.0
MOST_REVISION = 253
"""Characters of a revision: as many as the value of an annotation that others read needs."""


class NotNow(Exception):
    """The engine has not started, has died, or another change is on its way."""


class Sleeping:
    """Commands come from the admin port's loop, on a thread of its own; everything else runs on the front's loop."""

    def __init__(self, status: Status, send: Callable[[Command], None]) -> None:
        """`send` belongs to the front's loop, which `serve` gives."""
        self._status, self._send = status, send
        self._loop: asyncio.AbstractEventLoop | None = None
        self._revision = ""
        """Of the change that is on its way, if it is a reload."""
        self._waiting: dict[asyncio.Future[None], tuple[Change, str]] = {}
        """Who waits for the end of a change."""

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Takes commands from now on."""
        self._loop = loop

    async def change(self, what: Change, revision: str = "", wait: float = 0.0) -> bool:
        """Asks for it, and waits so many seconds for the end; whether that has come. NotNow where it cannot be asked
        for."""
        if self._loop is None or not self._status.started or not self._status.engine_alive or self._status.draining:
            raise NotNow(f"the engine does not serve ({self._status.engine_state})")
        asked = self._ask(what, revision if what is Change.Reload else "", min(wait, MOST_WAIT_SECONDS))
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, self._loop))

    def heard(self, residence: Residence) -> None:
        """The engine has obeyed or refused a command, or has fallen asleep or woken by itself."""
        status = self._status
        status.residence = residence
        if status.change is None or _obeyed(status.change, self._revision, residence):
            # Asleep by command it keeps requests away: also where it could not wake, and again after new weights.
            status.change = Change.Sleep if residence.asleep and not residence.idle else None
        for waiting, asked in self._waiting.items():
            if _obeyed(*asked, residence) and not waiting.done():
                waiting.set_result(None)

    async def _ask(self, what: Change, revision: str, wait: float) -> bool:
        status = self._status
        if status.change in (Change.Wake, Change.Reload) and (what, revision) != (status.change, self._revision):
            raise NotNow(f"the engine is {status.sleep_state}")
        status.change, self._revision = what, revision
        commands: dict[Change, Command] = {
            Change.Sleep: Sleep(),
            Change.Wake: Wake(),
            Change.Reload: Reload(revision),
        }
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = what, revision
        self._send(commands[what])
        try:
            return bool((await asyncio.wait((waiting,), timeout=wait))[0])
        finally:
            del self._waiting[waiting]


def _obeyed(what: Change, revision: str, said: Residence) -> bool:
    """Whether the engine has done or refused that, by what it said last."""
    match what:
        case Change.Sleep:
            return bool(said.problem) or (said.asleep and not said.idle)
        case Change.Wake:
            return bool(said.problem) or not said.asleep
        case Change.Reload:
            return revision in (said.revision, said.refused)
