"""The terminal: its width, and a frame that is drawn again and again in the same place."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

ENTER = "\x1b[?1049h\x1b[?25l"
"""The alternate screen, without a cursor."""
LEAVE = "\x1b[?25h\x1b[?1049l"
HOME, END_LINE, END_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def size() -> tuple[int, int]:
    """Columns and lines of the terminal."""
    found = shutil.get_terminal_size()
    return max(20, found.columns), max(5, found.lines)


@contextmanager
def screen() -> Iterator[None]:
    """The alternate screen; the terminal is as before at the end, however that comes."""
    sys.stdout.write(ENTER)
    sys.stdout.flush()
    try:
        yield
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()


def draw(head: str, lines: Sequence[str], height: int) -> None:
    """Draw one frame: what does not fit into the height is counted in its last line."""
    room = height - 2
    shown = list(lines[:room])
    if len(lines) > room:
        shown[-1:] = [f"and {len(lines) - room + 1} more lines: use a higher terminal, or -n NAMESPACE"]
    frame = "".join(f"{line}{END_LINE}\n" for line in (head, *shown))
    sys.stdout.write(f"{HOME}{frame}{END_SCREEN}")
    sys.stdout.flush()
