"""A front process over the engine without a model: `python -m benchmarks.front_streams.front ENGINE_JSON`.

PYTHONPATH says whose front.
"""

import sys
from pathlib import Path

from graphpod_runtime.front.options import ServeOptions
from graphpod_runtime.front.serve import serve

if __name__ == "__main__":
    engine = (sys.executable, "-m", "benchmarks.front_streams.engine")
    options = ServeOptions(
        config=Path(sys.argv[1]), host="127.0.0.1", http_port=0, admin_port=0, accept_seconds=0, engine_command=engine
    )
    sys.exit(serve(options))
