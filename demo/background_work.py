"""Work that a later stage needs, begun in an earlier one: images are built while Go compiles Kubernetes."""

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from demo.ground import Say

Result = TypeVar("Result")


class BackgroundWork(Generic[Result]):
    """`work` runs in a thread from the start; its lines and its error appear where `wait` is called."""

    def __init__(self, work: Callable[[Say], Result]) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()  # None: the work has ended
        self._results: list[Result] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, args=(work,), name="background-work", daemon=True).start()

    def wait(self, say: Say) -> Result:
        """What `work` returned. Raises what it raised."""
        while (line := self._lines.get()) is not None:
            say(line)
        self._lines.put(None)  # for the next who waits
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self, work: Callable[[Say], Result]) -> None:
        try:
            self._results.append(work(self._lines.put))
        except BaseException as error:  # noqa: BLE001  # it belongs to the one who waits
            self._error = error
        finally:
            self._lines.put(None)
