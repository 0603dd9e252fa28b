"""An engine process without a model: every open request gets a token a pass, so many tokens a second in all.

`GRAPHPOD_TOKENS_PER_SECOND` is the pace; 0: as fast as frames leave.
"""

import argparse
import itertools
import os
import threading
import time
from pathlib import Path

from benchmarks.front_streams.model import FIRST_WORD, MOST_STREAMS, MOST_TOKENS, WORDS
from graphpod_policy import EngineConfig
from graphpod_runtime.front.status import first_report
from graphpod_runtime.wire.messages import (
    Abort,
    Drain,
    Event,
    Finished,
    FinishReason,
    Heartbeat,
    Submit,
    Tokens,
    Warmup,
)
from graphpod_runtime.wire.report import ServedLimits, State
from graphpod_runtime.wire.socket import BEAT, WIRE, EngineEnd

IDLE_SECONDS = 0.1
AT_ONCE = 8
"""Passes without a pace between two looks for commands."""


class Engine:
    """Requests that are open, and what is left of each."""

    def __init__(self, end: EngineEnd, tokens_per_second: float) -> None:
        self._end, self._pace = end, tokens_per_second
        self._left: dict[str, int] = {}
        self._words = itertools.cycle(range(FIRST_WORD, FIRST_WORD + WORDS))
        self.draining = False

    def run(self) -> None:
        """Serves until a Drain."""
        due = time.perf_counter()
        while not self.draining or self._left:
            self._obey()
            if not self._left:
                due = time.perf_counter()
            elif self._pace:
                if (ahead := due - time.perf_counter()) > 0:
                    time.sleep(ahead)
                due += len(self._left) / self._pace
                self._end.send(self._turn())
            else:
                for _ in range(AT_ONCE):
                    self._end.send(self._turn())

    def _obey(self) -> None:
        for command in self._end.poll(0 if self._left else IDLE_SECONDS):
            match command:
                case Submit():
                    self._left[command.id] = command.max_tokens
                case Abort():
                    if self._left.pop(command.id, None) is not None:
                        self._end.send([Finished(command.id, FinishReason.Abort)])
                case Drain():
                    self.draining = True

    def _turn(self) -> list[Event]:
        """A token for each request, in one frame."""
        events: list[Event] = []
        for id, left in list(self._left.items()):
            events.append(Tokens(id, [next(self._words)]))
            if left > 1:
                self._left[id] = left - 1
            else:
                del self._left[id]
                events.append(Finished(id, FinishReason.Length))
        return events


def beat(folder: Path) -> None:
    """Heartbeats, for ever."""
    end = EngineEnd(folder, BEAT)
    while True:
        end.send([Heartbeat(time.monotonic(), "Ready")])
        time.sleep(1)


def main() -> None:
    """One engine process, from its start to a Drain."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--wire", type=Path, required=True)
    options = parser.parse_args()
    end = EngineEnd(options.wire, WIRE)
    threading.Thread(target=beat, args=(options.wire,), daemon=True).start()
    report = first_report(EngineConfig.parse(options.config.read_bytes()))
    report.state, report.kv_pages, report.vocabulary = State.Ready, 1 << 20, FIRST_WORD + WORDS
    report.limits = ServedLimits(MOST_TOKENS, MOST_STREAMS, ())
    end.send([Warmup(report.as_dict())])
    Engine(end, float(os.environ["GRAPHPOD_TOKENS_PER_SECOND"])).run()
    end.close()


if __name__ == "__main__":
    main()
