"""What the person in front of `make demo` sees: one line per stage with its time, and what moves meanwhile."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

QUIET = 10.0  # s between two progress lines where a line cannot be overwritten
SAME = 60.0  # s between two that say the same: it goes on

Say = Callable[[str], None]


class Stage:
    """One running stage. `say` reports a step, `progress` a number that moves, `note` ends up on the stage's line."""

    def __init__(self, name: str, out: TextIO) -> None:
        self.name, self.out, self.text = name, out, ""
        self._shown, self._last = time.monotonic(), ""

    def say(self, text: str) -> None:
        """A step within the stage; on a terminal it gives way to the next one."""
        if self.out.isatty():
            self._overwrite(f"· {self.name:<9} {text}")
        else:
            print(f"    {text}", file=self.out, flush=True)

    def progress(self, text: str) -> None:
        """Like `say`, but may be called often."""
        quiet = time.monotonic() - self._shown
        if self.out.isatty() or quiet >= (SAME if text == self._last else QUIET):
            self._shown, self._last = time.monotonic(), text
            self.say(text)

    def note(self, text: str) -> None:
        self.text = text

    def end(self, mark: str, seconds: float) -> None:
        if self.out.isatty():
            self._overwrite("")
        print(f"{mark} {self.name:<9} {seconds:6.1f} s  {self.text}".rstrip(), file=self.out, flush=True)

    def _overwrite(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        print("\r\x1b[K" + text.splitlines()[0][:width] if text else "\r\x1b[K", end="", file=self.out, flush=True)


@contextmanager
def stage(name: str, out: TextIO | None = None) -> Iterator[Stage]:
    """Run the body as one stage; its line is printed at the end, also when the body fails."""
    current, began = Stage(name, out or sys.stdout), time.monotonic()
    try:
        yield current
    except BaseException:
        current.end("✗", time.monotonic() - began)
        raise
    current.end("✓", time.monotonic() - began)
