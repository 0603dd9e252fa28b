"""The client's end of an engine's wire: what the front does, without HTTP."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import zmq

from graphpod_runtime.wire.messages import Drain, Finished, FinishReason, Submit, decode_events, encode
from graphpod_runtime.wire.socket import SEND_LIMIT_MS, WIRE, address, unbounded

CHECK_MS = 1000


class WireClient:
    """Generates through the wire in `folder`, whose engine may come later. Its `generate` is a meter's subject."""

    def __init__(self, folder: Path, check: Callable[[], None]) -> None:
        """`check` is called about every second of waiting, and raises when the engine has ended."""
        self._check = check
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        unbounded(self._socket)
        self._socket.setsockopt(zmq.LINGER, SEND_LIMIT_MS)
        self._socket.bind(address(folder, WIRE))

    def generate(self, prompts: list[list[int]], new: int) -> object:
        """Every token is here when it returns. RuntimeError for a request that did not end as asked."""
        submits = [Submit(str(at), prompt, new, ignore_eos=True) for at, prompt in enumerate(prompts)]
        self._until(zmq.POLLOUT)
        self._socket.send(encode(submits))
        waiting = len(submits)
        while waiting:
            self._until(zmq.POLLIN)
            for event in decode_events(self._socket.recv()):
                if isinstance(event, Finished):
                    waiting -= 1
                    if event.reason is not FinishReason.Length:
                        raise RuntimeError(f"the engine ended a request with {event.reason}: {event.message}")
        return None

    def _until(self, event: int) -> None:
        """Returns when the socket can be read, or written, which it cannot before the engine is there."""
        while not self._socket.poll(CHECK_MS, event):
            self._check()

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Makes the engine leave the wire, unless it failed."""
        if kind is None:
            self._socket.send(encode([Drain()]))
        self._socket.close()
        self._context.term()
