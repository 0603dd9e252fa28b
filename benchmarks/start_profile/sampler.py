"""What looks at the threads of a process that starts. Python runs it as `sitecustomize`, before anything else.

It lies in a folder of PYTHONPATH under that name and imports nothing of ours. In the front and in the engine process a
thread notes, every INTERVAL, what each thread is at. It writes the notes when the file STOP is in the folder that
SAMPLES names.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SAMPLES = "GRAPHPOD_START_SAMPLES"
STOP = "stop"
INTERVAL = 0.01  # s
LONGEST = 900.0
"""Seconds after which nothing more is noted."""
PROCESSES = {"graphpod_runtime.cli": "front", "graphpod_runtime.engine.process": "engine"}
WRAPPERS = ("_wrapped_call_impl", "_call_impl")
"""Of torch's modules."""

Stack = tuple[tuple[CodeType, int], ...]
"""Of a thread, outermost first: code and line."""


def name_of(words: list[str]) -> str | None:
    """Of the process with this command line; None: it is not sampled."""
    return PROCESSES.get(words[words.index("-m") + 1]) if "-m" in words[:-1] else None


def labelled(stack: Stack) -> list[str]:
    """Each call as `file:line function`, without those that only lead to others. Of code that is not ours a label has
    the folder and no line, so that a call tree has each function once."""
    labels = []
    for code, line in stack:
        path = Path(code.co_filename)
        if (code.co_filename.startswith("<frozen") or code.co_name in WRAPPERS) and (code, line) != stack[-1]:
            continue
        ours = any(part.startswith("graphpod_") for part in path.parts)
        place = f"{path.name}:{line}" if ours else "/".join(path.parts[-2:])
        labels.append(f"{place} {code.co_name}")
    return labels


class Sampler:
    """The notes of one process: when, for how long, whether the main thread had a processor, what each thread did."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float, float, list[tuple[str, int]]]] = []
        self._stacks: dict[Stack, int] = {}
        self._main = threading.main_thread().ident or 0
        self._clock = time.pthread_getcpuclockid(self._main)
        self._last, self._cpu = time.time(), time.clock_gettime(self._clock)

    def note(self) -> None:
        """What threads do now stands for the time since the last note: a call that holds the interpreter's lock delays
        a note, and is on the stack then."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        now, cpu, own = time.time(), time.clock_gettime(self._clock), threading.get_ident()
        threads = [
            ("main" if ident == self._main else names.get(ident, "foreign"), self._number(frame))
            for ident, frame in sys._current_frames().items()
            if ident != own
        ]
        self.samples.append((now, now - self._last, cpu - self._cpu, threads))
        self._last, self._cpu = now, cpu

    def _number(self, frame: FrameType | None) -> int:
        calls = []
        while frame is not None:
            calls.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        return self._stacks.setdefault(tuple(reversed(calls)), len(self._stacks))

    def content(self) -> dict[str, Any]:
        """As it is written."""
        return {"stacks": [labelled(stack) for stack in self._stacks], "samples": self.samples}


def run(folder: Path, name: str) -> None:
    """Samples this process until it is asked to stop."""
    sampler, until = Sampler(), time.monotonic() + LONGEST
    while not (folder / STOP).exists() and time.monotonic() < until:
        sampler.note()
        time.sleep(INTERVAL)
    part = folder / f"{name}.part"
    part.write_text(json.dumps(sampler.content()))
    part.rename(folder / f"{name}.json")


if __name__ == "sitecustomize" and SAMPLES in os.environ and (_name := name_of(sys.orig_argv)) is not None:
    threading.Thread(target=run, args=(Path(os.environ[SAMPLES]), _name), name="sampler", daemon=True).start()
