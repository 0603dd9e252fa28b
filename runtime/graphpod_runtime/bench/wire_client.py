"""The client's end of an engine's wire: what the front does, without HTTP."""

import select
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from graphpod_runtime.wire.line import Line
from graphpod_runtime.wire.messages import Drain, Finished, FinishReason, Submit, decode_events, encode
from graphpod_runtime.wire.socket import SEND_LIMIT_SECONDS, WIRE, FrontEnd

CHECK_SECONDS = 1.0
AT_ONCE = 1024


class WireClient:
    """Generates through the wire in `folder`, whose engine may come later. Its `generate` is a meter's subject."""

    def __init__(self, folder: Path, check: Callable[[], None]) -> None:
        """`check` is called about every second of waiting, and raises when the engine has ended."""
        self._check = check
        self._end = FrontEnd(folder, WIRE)

    def generate(self, prompts: list[list[int]], new: int) -> object:
        """Every token is here when it returns. RuntimeError for a request that did not end as asked."""
        submits = [Submit(str(at), prompt, new, ignore_eos=True) for at, prompt in enumerate(prompts)]
        line = self._engine()
        line.send(encode(submits))
        waiting = len(submits)
        while waiting:
            while not (frames := line.take(AT_ONCE)):
                if not line.wait(CHECK_SECONDS):
                    self._check()
            for event in (event for frame in frames for event in decode_events(frame)):
                if isinstance(event, Finished):
                    waiting -= 1
                    if event.reason is not FinishReason.Length:
                        raise RuntimeError(f"the engine ended a request with {event.reason}: {event.message}")
        return None

    def _engine(self) -> Line:
        """Its line, once it is there."""
        while (line := self._end.line) is None:
            if not select.select([self._end], [], [], CHECK_SECONDS)[0]:
                self._check()
        return line

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Makes the engine leave the wire, unless it failed."""
        if kind is None:
            line = self._engine()
            line.send(encode([Drain()]))
            line.close(SEND_LIMIT_SECONDS)
        self._end.close()
