"""One process of the benchmark, from the side of the command."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import TypeVar

import msgspec

from graphpod_runtime.base.process.command import MODULE
from graphpod_runtime.bench.messages import Failed, Note, Order, Task, encode, message_of

T = TypeVar("T")

LAST_LINES = 12
"""Of standard error, in the message of a process that died."""


class ProcessFailed(Exception):
    """A process could not do what it is for; the message is its own, or its last words on standard error."""


class Process(AbstractContextManager["Process"]):
    """Started at once; ended with its context, asked first and killed if it does not answer."""

    def __init__(
        self, order: Order, note: Callable[[Note], None], environment: Mapping[str, str] | None = None
    ) -> None:
        """`note` gets the lines for the person who waits; `environment` is added to this process's own."""
        self._note = note
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the context)
        self._process = subprocess.Popen(
            [*MODULE, "graphpod_runtime.bench.child", encode(order)],
            env=os.environ | dict(environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, task: Task, *lines: str) -> None:
        """Sends a task, and the lines that belong to it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("".join(f"{line}\n" for line in (task.value, *lines)))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None

    def answer(self, kind: type[T]) -> T:
        """The next message that is not a note. ProcessFailed when the process ends first."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                message = message_of(line)
            except msgspec.DecodeError as error:
                raise ProcessFailed(f"said {line!r}: {error}") from error
            if isinstance(message, Note):
                self._note(message)
            elif isinstance(message, Failed):
                raise ProcessFailed(message.reason)
            elif isinstance(message, kind):
                return message
            else:
                raise ProcessFailed(f"answered {type(message).__name__}, not {kind.__name__}")
        raise self._died()

    def check(self) -> None:
        """ProcessFailed if it has ended."""
        if self._process.poll() is not None:
            raise self._died()

    def _died(self) -> ProcessFailed:
        code = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().splitlines()[-LAST_LINES:]
        return ProcessFailed("\n".join([f"ended with code {code}", *last]))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # it is gone, and what was left for it too
                    pipe.close()
        self._process.wait()
        self._errors.close()
