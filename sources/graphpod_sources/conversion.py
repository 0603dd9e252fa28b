"""A GGUF file into a model folder, by the engine's own converter, which is next to this program in the image."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

from graphpod_sources.names import shown
from graphpod_sources.problem import Problem, Reason

PROGRAM = "graphpod-engine"
SHOWN = 600
"""Most characters of what the converter says."""


def convert(gguf: Path, folder: Path, work: Path, where: str) -> list[str]:
    """Put the converted files of `gguf` into `folder`; their names. Raises `Problem`.

    `work` is where they are written first; it is emptied before.
    """
    program = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=str(Path(sys.executable).parent))
    if program is None:
        raise Problem(
            Reason.NoWeights,
            f"{where}: has weights only as {shown(gguf.name)}, and {PROGRAM} is not installed to convert it",
            next_step="run graphpod-fetch in the engine's image, or name a folder with safetensors",
        )
    shutil.rmtree(work, ignore_errors=True)
    done = subprocess.run(
        [program, "convert", "--gguf", str(gguf), "--out", str(work)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip()[-SHOWN:] or f"exit status {done.returncode}"
        if os.strerror(errno.ENOSPC) in said:
            raise Problem(Reason.DiskFull, f"{folder}: {shown(gguf.name)} cannot be converted, no space is left")
        raise Problem(
            Reason.NoWeights,
            f"{where}: {shown(gguf.name)} cannot be converted: {said}",
            next_step="use the model's safetensors as they are published",
        )
    names = sorted(file.name for file in work.iterdir())
    for name in names:
        with (work / name).open("rb") as file:
            os.fsync(file.fileno())
        (work / name).replace(folder / name)
    return names
