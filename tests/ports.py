"""Ports of this machine that no other process of tests takes while this one runs.

A port that was only found free may be taken before a process listens on it: another test looks at the same moment.
Those here have a lock of their process, and lie below the ports that the kernel gives to connections.
"""

import fcntl
import os
import socket
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TextIO

ROW = 8
FIRST, END = 21000, 32000


class Rows:
    """Rows of ports that are locked for this process, by their first ports."""

    def __init__(self) -> None:
        self._locks: dict[int, TextIO] = {}
        self._single: set[int] = set()
        """Rows whose ports are given one by one,"""
        self._left: list[int] = []
        """and those of them that are not given yet."""

    def row(self) -> int:
        """The first port of a row that is free."""
        rows = (first for first in range(FIRST, END, ROW) if first not in self._single and self._locked(first))
        found = next((first for first in rows if _is_free(first)), None)
        assert found is not None, "no free ports"
        return found

    def port(self) -> int:
        """One that was not given before."""
        if not self._left:
            first = self.row()
            self._single.add(first)
            self._left += range(first, first + ROW)
        return self._left.pop()

    def _locked(self, first: int) -> bool:
        if first in self._locks:
            return True
        file = (Path(tempfile.gettempdir()) / f"graphpod-test-ports-{first}").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._locks[first] = file
        return True


def _is_free(first: int) -> bool:
    with ExitStack() as bound:
        try:
            for one in range(first, first + ROW):
                bound.enter_context(socket.create_server(("127.0.0.1", one)))
        except OSError:
            return False
        return True


@cache
def _rows_of(pid: int) -> Rows:
    """A fork has none of its parent's."""
    return Rows()


def free_ports() -> int:
    """The first of ROW that are free in a row: the same ones until something listens on one of them."""
    return _rows_of(os.getpid()).row()


def free_port() -> int:
    """One; another one with each call."""
    return _rows_of(os.getpid()).port()
