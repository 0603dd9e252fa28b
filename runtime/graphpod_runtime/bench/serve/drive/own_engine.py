"""Our own engine and front for the time of a run: `graphpod-engine serve` on free ports of this machine."""

import http.client
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from graphpod_runtime.base.process.command import MODULE

POLL_SECONDS = 0.02
GOODBYE_SECONDS = 60.0
LAST_LINES = 12
"""Of the log, in the message of an engine that ended."""
_LISTENING = re.compile(r"listening: http (\S+), admin (\S+)")


class EngineEnded(Exception):
    """The engine ended before it should; the message has the end of its log."""


class OwnEngine(AbstractContextManager["OwnEngine"]):
    """Started at once; asked to end, and if need be killed, with its context."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """`words` are those after `graphpod-engine`, less the ports; `environment` is added to this process's own."""
        ports = ["--host", "127.0.0.1", "--http-port", "0", "--admin-port", "0"]
        self._log = tempfile.NamedTemporaryFile("w+", prefix="graphpod-bench-", suffix=".log")  # noqa: SIM115
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [*MODULE, "graphpod_runtime.cli", *words, *ports],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(environment or {}),
        )
        self.url = self.admin = ""

    def ready(self) -> float:
        """Waits until it serves; seconds from the start of its process. EngineEnded if it does not come so far."""
        while not self.admin:
            self.check()
            if found := _LISTENING.search(self.log):
                self.url, self.admin = f"http://{found[1]}", found[2]
            time.sleep(POLL_SECONDS)
        while not self._answers(self.admin):
            self.check()
            time.sleep(POLL_SECONDS)
        return time.monotonic() - self._began

    @property
    def log(self) -> str:
        """What front and engine have said so far."""
        return Path(self._log.name).read_text()

    @property
    def pid(self) -> int:
        """Of the front, whose child the engine is."""
        return self._process.pid

    def check(self) -> None:
        """EngineEnded if its process has ended."""
        code = self._process.poll()
        if code is not None:
            last = self.log.splitlines()[-LAST_LINES:]
            raise EngineEnded("\n".join([f"the engine ended with code {code}; the end of its log:", *last]))

    def _answers(self, admin: str) -> bool:
        connection = http.client.HTTPConnection(admin, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
