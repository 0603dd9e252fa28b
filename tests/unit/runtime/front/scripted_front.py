"""A front process over the scripted engine, of the arguments CONFIG TERMINATION_LOG ACCEPT_SECONDS (`front_forks.py`).

`GRAPHPOD_API_KEY_FILE` names the file of its keys, `GRAPHPOD_TLS_FOLDER` the folder of its certificate;
`GRAPHPOD_STUCK_SECONDS` replaces the watchdog's floor of 60 s, `GRAPHPOD_IDLE_SECONDS` the 15 s after which an idle
stream carries a comment, `GRAPHPOD_MOST_WAITING` the tokens that wait for a slow reader; `GRAPHPOD_OPTIONS` is JSON,
further options of the server. While the file `GRAPHPOD_HOLD` exists, detokenising holds the event loop.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphpod_runtime.front import watchdog
from graphpod_runtime.front.openai import stream
from graphpod_runtime.front.options import ServeOptions
from graphpod_runtime.front.requests import engine_stream
from graphpod_runtime.front.serve import serve
from graphpod_runtime.front.text import detokenize

ENGINE = ("scripted engine",)
"""Its command, which `front_forks.py` follows."""


def held(feed: Callable[..., str], hold: Path) -> Callable[..., str]:
    """`feed`, once the file has gone."""

    def fed(*arguments: Any) -> str:
        while hold.exists():
            hold.with_suffix(".holding").touch()
            time.sleep(0.01)
        return feed(*arguments)

    return fed


def main(arguments: list[str]) -> int:
    """Until it ends; returns the exit code."""
    config, termination_log, accept_seconds = arguments
    watchdog.FLOOR_SECONDS = float(os.environ.get("GRAPHPOD_STUCK_SECONDS", watchdog.FLOOR_SECONDS))
    stream.IDLE_SECONDS = float(os.environ.get("GRAPHPOD_IDLE_SECONDS", stream.IDLE_SECONDS))
    engine_stream.MOST_WAITING = int(os.environ.get("GRAPHPOD_MOST_WAITING", engine_stream.MOST_WAITING))
    if hold := os.environ.get("GRAPHPOD_HOLD"):
        detokenize.ByteDetokenizer.feed = held(detokenize.ByteDetokenizer.feed, Path(hold))  # type: ignore[method-assign]
    key = os.environ.get("GRAPHPOD_API_KEY_FILE")
    return serve(
        ServeOptions(
            Path(config),
            "127.0.0.1",
            0,
            0,
            Path(termination_log),
            float(accept_seconds),
            Path(key) if key else None,
            ENGINE,
            tls_folder=Path(tls) if (tls := os.environ.get("GRAPHPOD_TLS_FOLDER")) else None,
            **json.loads(os.environ.get("GRAPHPOD_OPTIONS", "{}")),
        )
    )
