"""Parts of flashinfer without the rest of it.

The package's own module imports all of it, mixtures, compilers and communication too: 126 modules, of which prefill
attention needs 28. That is time between the imports of a start and its weights.
"""

import importlib
import importlib.util
import logging
import sys

PACKAGE = "flashinfer"
PARTS = ("flashinfer.jit.env", "flashinfer.jit.attention.modules", "flashinfer.utils")

logger = logging.getLogger("graphpod.engine")


def import_parts() -> None:
    """Imports PARTS, under a package whose own module has not run; as a whole where that fails, or it is there."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or PACKAGE in sys.modules:
        return
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    try:
        for part in PARTS:
            importlib.import_module(part)
    except Exception:
        logger.warning("parts of %s cannot be imported by themselves; the start imports all of it", PACKAGE,
                       exc_info=True)  # fmt: skip
        for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
            del sys.modules[name]
