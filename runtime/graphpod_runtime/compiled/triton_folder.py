"""Where Triton keeps the kernels that it has compiled."""

import contextlib
import os
from collections.abc import MutableMapping
from pathlib import Path

FOLDER = "TRITON_CACHE_DIR"
"""Names the folder in the environment, for Triton and for torch."""


def name_triton_folder(environment: MutableMapping[str, str] = os.environ) -> None:
    """Names one folder for the whole start, and for processes that are started with `environment`: `triton` in that of
    torch's compiler, else Triton's own default.

    Left alone, torch names another folder when it first compiles for a GPU. It does not where it loads what it has
    compiled before, so the second start would not find what the first one has kept. Neither checks who wrote the code
    that it loads from there: docs/operations/security.md says which folders must be the user's own.
    """
    if FOLDER in environment:
        return
    with contextlib.suppress(OSError, RuntimeError):  # there is no home, or nothing may be written there
        if inductor := environment.get("TORCHINDUCTOR_CACHE_DIR"):
            folder = Path(inductor, "triton")
        else:
            folder = Path(environment.get("TRITON_HOME") or Path.home()) / ".triton" / "cache"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            environment[FOLDER] = str(folder)
