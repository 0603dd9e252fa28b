"""A front process with marks: `python -m benchmarks.first_token.front ENGINE_JSON`. GRAPHPOD_ENGINE is the module that
runs its engine, PYTHONPATH says whose front and engine they are.
"""

import os
import sys
from pathlib import Path

from benchmarks.first_token.marks import wrap_front
from graphpod_runtime.front.options import ServeOptions
from graphpod_runtime.front.serve import serve

if __name__ == "__main__":
    wrap_front()
    engine = (sys.executable, "-m", os.environ["GRAPHPOD_ENGINE"])
    options = ServeOptions(
        config=Path(sys.argv[1]), host="127.0.0.1", http_port=0, admin_port=0, accept_seconds=0, engine_command=engine
    )
    sys.exit(serve(options))
