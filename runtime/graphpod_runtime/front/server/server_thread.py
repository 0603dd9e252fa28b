"""A server on a thread and an event loop of its own: what holds the front's loop does not hold its answers."""

import asyncio
import socket
import threading
from typing import Any

import uvloop

from graphpod_runtime.front.server.listen import server


class ServerThread:
    """Serves `app` on a listening socket from `start` to `stop`. What `app` reads is written by other threads."""

    def __init__(self, name: str, app: Any, bound: socket.socket) -> None:
        self._server = server(app)
        self._bound = bound
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    async def stop(self, seconds: float) -> None:
        """Returns when open requests are answered, after `seconds` at most."""
        self._server.should_exit = True
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def wait() -> None:
            self._thread.join(seconds)
            loop.call_soon_threadsafe(ended.set)

        # Not a thread of the loop's pool: requests may have all of those.
        threading.Thread(target=wait, name=f"end of {self._thread.name}", daemon=True).start()
        await ended.wait()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._server.serve([self._bound]))
