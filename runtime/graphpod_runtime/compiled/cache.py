"""Compiled functions, on disk where they are compiled ahead of time.

An entry is one file: what ahead-of-time compilation made of a function, called without Python. Loading it takes
milliseconds, traces nothing and imports no compiler. Its name says what was compiled, for which machine by which
versions, and the digest of its content: what is not whole or not ours is passed over, and compiled again. Entries
appear by renaming, so any number of engines may share a folder.

An entry is code that runs in the engine: a shared folder must be one that only engines can write.
"""

import contextlib
import hashlib
import logging
import os
import platform
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphpod_policy import __version__
from graphpod_runtime.compiled.aot import MOST_ROWS, Argument, Function, tensors_of, write_package
from graphpod_runtime.compiled.jit import compile_now

logger = logging.getLogger("graphpod.compiled")

FOLDER = "GRAPHPOD_COMPILE_CACHE"
"""Names the cache's folder in the environment."""
AHEAD = frozenset({"cpu"})
"""Devices whose code is compiled ahead of time and kept; `jit` says why not for GPUs."""
KEY = "graphpod.key"
"""In a package's metadata."""


def folder_of(environment: Mapping[str, str] = os.environ) -> Path:
    """GRAPHPOD_COMPILE_CACHE; without it `graphpod` beside inductor's own cache, or under the user's caches."""
    if named := environment.get(FOLDER):
        return Path(named)
    if inductor := environment.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(inductor, "graphpod")
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache", "graphpod", "compiled")


class Code:
    """A compiled function. It takes the arguments it was compiled with, any number of rows up to MOST_ROWS, and
    returns a tuple; it may be called inside a capture."""

    def __init__(self, run: Callable[[list[Tensor]], Sequence[Tensor]], tensors: tuple[int, ...], counted: int) -> None:
        """`run` takes the arguments that are tensors, which are at `tensors`; the one at `counted` has rows."""
        self._run, self._tensors, self._counted = run, tensors, counted

    def __call__(self, *arguments: Argument) -> tuple[Tensor, ...]:
        rows = arguments[self._counted].shape[0]  # type: ignore[union-attr]
        if rows > MOST_ROWS:
            raise ValueError(f"{rows} rows for code compiled for at most {MOST_ROWS}; lower prefillChunk")
        return tuple(self._run([arguments[index] for index in self._tensors]))  # type: ignore[misc]


class CompileCache:
    """Compiled functions of one engine. `compiles` and `loads` count what was made here and what was found."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self._folder, self._device = folder, device
        self.compiles = self.loads = 0

    def code(
        self, name: str, text: str, function: Function, examples: tuple[Argument, ...], rows: tuple[int, ...]
    ) -> Code:
        """`function` compiled for arguments like `examples`, of which those at `rows` have rows: their first dimension
        is any number, the same for all. Every other dimension, the strides and the types are those of the examples.

        `name` is for people; `text` tells this function from all others that are called with such arguments, by what
        it does. `function` takes and returns tensors (a tuple, one, or None) and may write its arguments.
        """
        tensors = tuple(tensors_of(examples))
        if self._device.type not in AHEAD:
            return Code(compile_now(name, function, examples, rows, self._count), tensors, rows[0])
        key = _key(self._device, text, examples, rows)
        package = self._found(name, key) or self._made(name, key, function, examples, rows)
        return Code(package.boxed_run, tensors, rows[0])

    def _count(self) -> None:
        self.compiles += 1

    def _found(self, name: str, key: str) -> Any:
        """The package of `key`, if a whole one is there."""
        for path in sorted(self._folder.glob(f"{name}-{key}-*.pt2")):
            try:
                if _digest(path) != path.stem.rpartition("-")[2]:
                    raise ValueError("its content is not what its name says")
                package = self._opened(path)
                if package.get_metadata().get(KEY) != key:
                    raise ValueError("it was compiled for something else")
            except (OSError, RuntimeError, ValueError) as error:
                logger.warning("%s cannot be used and is compiled again: %s", path, error)
            else:
                self.loads += 1
                return package
        return None

    def _made(
        self, name: str, key: str, function: Function, examples: tuple[Argument, ...], rows: tuple[int, ...]
    ) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{name}.pt2")
            write_package(function, examples, rows, path, {KEY: key})
            self._count()
            self._keep(path, f"{name}-{key}-{_digest(path)}.pt2")
            return self._opened(path)

    def _keep(self, package: Path, entry: str) -> None:
        """`package` in the cache under its name, at once or not at all. Without a place to write the engine still runs:
        its next start compiles again."""
        partial = self._folder / f".{uuid.uuid4().hex}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(package, partial)
            partial.rename(self._folder / entry)
        except OSError as error:
            logger.warning("%s is not kept for the next start: %s; name a folder in %s", entry, error, FOLDER)
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    def _opened(self, path: Path) -> Any:
        # For one thread, on whatever device of the type there is.
        return torch._C._aoti.AOTIModelPackageLoader(str(path), "model", True, 1, -1)


def _key(device: torch.device, text: str, examples: tuple[Argument, ...], rows: tuple[int, ...]) -> str:
    """Of all that compiled code depends on."""
    parts = [*machine(device), text]
    for index, example in enumerate(examples):
        if isinstance(example, Tensor):
            shape = [int(size) for size in example.shape]
            strides = [int(stride) for stride in example.stride()]
            parts.append(f"{example.dtype} {['rows', *shape[1:]] if index in rows else shape} {strides}")
        else:
            parts.append("rows" if example is not None else "none")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


@cache
def machine(device: torch.device) -> tuple[str, ...]:
    """Versions and hardware, and the engine's own sources."""
    sources = hashlib.sha256()
    package = Path(__file__).parent.parent
    for path in sorted(package.rglob("*.py")):
        sources.update(str(path.relative_to(package)).encode())
        sources.update(path.read_bytes())
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        hardware = f"{properties.name} sm_{properties.major}{properties.minor} cuda {torch.version.cuda}"
    else:
        hardware = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return __version__, sources.hexdigest(), torch.__version__, _triton(), hardware


def _triton() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return "no triton"


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:32]
