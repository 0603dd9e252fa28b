"""How the front's process ends: exit code, log line, termination message."""

import logging
from dataclasses import dataclass
from pathlib import Path

from graphpod_policy import ExitCode

log = logging.getLogger("graphpod.front")

KUBELET_FILE = Path("/dev/termination-log")
"""The kubelet makes it in every container; elsewhere it does not exist and is not made."""
MESSAGE_LIMIT = 4096
"""Bytes that the kubelet reads."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The cause of the end. `message` says what, where and what to do."""

    code: ExitCode
    message: str
    crashed: bool = False
    """The engine process ended by a signal of its own, without a word: it knew nothing of it."""
    early: bool = False
    """It was stopped before it was Ready: by the kubelet's startup probe, unless its pod goes."""

    @property
    def line(self) -> str:
        """The first line of the termination message."""
        return f"{self.code.name}: {' '.join(self.message.split())}"


class Ended(Exception):
    """Raised by a part of the front that cannot go on."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.ending = Ending(code, message)


def report(ending: Ending, path: Path | None) -> int:
    """Logs the ending and writes its line to `path` (None: where the kubelet reads it); returns the exit code."""
    drained = ending.code is ExitCode.Drained
    log.log(logging.INFO if drained else logging.ERROR, "%s", ending.line)
    if drained and not ending.early:
        return ending.code
    target = path or (KUBELET_FILE if KUBELET_FILE.exists() else None)
    if target is not None:
        try:
            target.write_bytes(ending.line.encode()[:MESSAGE_LIMIT])
        except OSError as error:
            log.error("cannot write the termination message: %s; mount a writable file at %s", error, target)
    return ending.code
