"""What a person sees while minutes pass: a line for each thing done, and one that is overwritten for what runs now."""

import time
from typing import TextIO


class Progress:
    """Lines with the seconds since the start, on `stream`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = time.monotonic()
        self._terminal = stream.isatty()
        self._open = False

    @property
    def terminal(self) -> bool:
        """Whether passing lines are seen."""
        return self._terminal

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        print(f"[{self.seconds:6.1f} s] {text}", file=self._stream, flush=True)

    def passing(self, text: str) -> None:
        """A line that the next one overwrites; only a terminal shows it."""
        if self._terminal:
            self._clear()
            print(f"[{self.seconds:6.1f} s] {text} …", end="", file=self._stream, flush=True)
            self._open = True

    def _clear(self) -> None:
        if self._open:
            print("\r\x1b[K", end="", file=self._stream)
            self._open = False
