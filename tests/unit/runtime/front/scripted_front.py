"""A front process over the scripted engine: `python scripted_front.py CONFIG TERMINATION_LOG ACCEPT_SECONDS`.

`GRAPHPOD_API_KEY_FILE` names the file of its keys; `GRAPHPOD_STUCK_SECONDS` replaces the watchdog's floor of 60 s,
`GRAPHPOD_IDLE_SECONDS` the 15 s after which an idle stream carries a comment.
"""

import os
import sys
from pathlib import Path

from graphpod_runtime.front import watchdog
from graphpod_runtime.front.openai import stream
from graphpod_runtime.front.options import ServeOptions
from graphpod_runtime.front.serve import serve

if __name__ == "__main__":
    config, termination_log, accept_seconds = sys.argv[1:]
    watchdog.FLOOR_SECONDS = float(os.environ.get("GRAPHPOD_STUCK_SECONDS", watchdog.FLOOR_SECONDS))
    stream.IDLE_SECONDS = float(os.environ.get("GRAPHPOD_IDLE_SECONDS", stream.IDLE_SECONDS))
    engine = (sys.executable, str(Path(__file__).with_name("scripted_engine.py")))
    key = os.environ.get("GRAPHPOD_API_KEY_FILE")
    sys.exit(
        serve(
            ServeOptions(
                Path(config),
                "127.0.0.1",
                0,
                0,
                Path(termination_log),
                float(accept_seconds),
                Path(key) if key else None,
                engine,
            )
        )
    )
