"""Compiled functions, on disk where they are compiled ahead of time.

An entry (`cache_folder.py`) is what ahead-of-time compilation made of a function, called without Python. Loading it
takes milliseconds, traces nothing and imports no compiler. Its name says what was compiled, for which machine by which
versions: what is of another is passed over, and compiled again.
"""

import hashlib
import platform
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphpod_policy import __version__
from graphpod_runtime.base.errors import CompileFailed, DeviceFailed, GraphError
from graphpod_runtime.compiled.aot import MOST_ROWS, Argument, Function, tensors_of, write_package
from graphpod_runtime.compiled.cache_folder import Entries, Unusable
from graphpod_runtime.compiled.jit import compile_now
from graphpod_runtime.compiled.source_comparison import prove

AHEAD = frozenset({"cpu"})
"""Devices whose code is compiled ahead of time and kept; `jit` says why not for GPUs."""
KEY = "graphpod.key"
"""In a package's metadata."""
WORDS = 600
"""Characters of a compiler's message that are handed on; a log has all."""
VOTES = 2
"""Of ranks on a function, by `alike`: it is compiled, it is proved."""


class Compiled(StrEnum):
    """What an engine compiles: the name of a function in its cache."""

    Before = "before"
    """The half of a layer before attention."""
    Mlp = "mlp"
    """Of the half after attention what lies between its residual sums."""
    After = "after"
    """That half whole."""
    Piece = "piece"
    """What Piecewise traced between two attentions, before the first or after the last."""


class CompiledCode:
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
    """Compiled functions of one engine. `compiles` and `loads` count what was made here and what was found,
    `uncompiled` how often a function ran as it was written, because once `sealed` nothing is compiled any more.
    """

    sealed = False
    """Latched at Ready: a compilation in serving would hold every request up for seconds."""

    def __init__(
        self,
        folder: Path,
        device: torch.device,
        ready: Callable[[str], None] = lambda name: None,
        alike: Callable[[], AbstractContextManager[None]] = nullcontext,
        together: Callable[[], AbstractContextManager[None]] = nullcontext,
        most: Callable[[int], int] = int,
    ) -> None:
        """`ready` is called with a function's name when it has been compiled or loaded. Of several ranks, `alike` is
        around what each does for itself, and raises at all of them what one raises; `together` is around what they
        compute together, where one that fails cannot say so to the others; `most` is the most of what they give."""
        self._entries, self._device, self._ready = Entries(folder), device, ready
        self._alike, self._together, self._most = alike, together, most
        self.compiles = self.loads = self.uncompiled = 0

    def code(
        self, name: str, text: str, function: Function, examples: tuple[Argument, ...], rows: tuple[int, ...]
    ) -> CompiledCode:
        """`function` compiled for arguments like `examples`, of which those at `rows` have rows: their first dimension
        is any number, the same for all. Every other dimension, the strides and the types are those of the examples.

        `name` is for people; `text` distinguishes this function from all others that are called with such arguments, by
        what it does. `function` takes and returns tensors (a tuple, one, or None) and may write its arguments.

        CompileFailed when the compiler gives up, whatever it raises, or when its code computes something else;
        DeviceFailed when the device does.
        """
        with self._alike(), _named(name):
            run = self._run(name, text, function, examples, rows)
        wrong: CompileFailed | None = None
        with self._together(), _named(name):
            try:
                prove(name, run, function, examples, rows)
            except CompileFailed as error:
                wrong = error
        with self._alike():
            if wrong is not None:
                raise wrong
        self._ready(name)
        return CompiledCode(run, tuple(tensors_of(examples)), rows[0])

    @contextmanager
    def as_many(self, name: str, count: int) -> Iterator[None]:
        """Around `count` functions of this `name`. Ranks vote on each, so one with fewer than another, as a stage of
        fewer layers may, votes on as if it had as many."""
        with self._alike():
            """A rank that failed before it came here is heard now, not as a number of functions."""
        missing = self._most(count) - count
        yield
        for _ in range(missing):
            for _ in range(VOTES):
                with self._alike():
                    """It has nothing to fail at."""
            self._ready(name)

    def _run(
        self, name: str, text: str, function: Function, examples: tuple[Argument, ...], rows: tuple[int, ...]
    ) -> Callable[[list[Tensor]], Sequence[Tensor]]:
        if self._device.type not in AHEAD:
            return compile_now(name, function, examples, rows, self)
        key = _key(self._device, text, examples, rows)
        package = self._found(name, key) or self._made(name, key, function, examples, rows)
        return package.boxed_run  # type: ignore[no-any-return]

    def compiled(self) -> None:
        self.compiles += 1

    def ran_uncompiled(self) -> None:
        self.uncompiled += 1

    def _found(self, name: str, key: str) -> Any:
        """The package of `key`, if one is there that can be used."""

        def opened(content: bytes) -> Any:
            package = _opened(content, name)
            if package.get_metadata().get(KEY) != key:
                raise Unusable("it was compiled for something else")
            return package

        package = self._entries.found(f"{name}-{key}", opened)
        if package is not None:
            self.loads += 1
        return package

    def _made(
        self, name: str, key: str, function: Function, examples: tuple[Argument, ...], rows: tuple[int, ...]
    ) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{name}.pt2")
            write_package(function, examples, rows, path, {KEY: key})
            self.compiled()
            content = path.read_bytes()
        self._entries.keep(f"{name}-{key}", content, path.suffix)
        return _opened(content, name)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """What fails in compiling the function of this `name`, as CompileFailed or DeviceFailed."""
    try:
        yield
    except torch.AcceleratorError as error:
        raise DeviceFailed(f"{name}, being compiled: {error}") from error
    except GraphError:
        raise
    except Exception as error:
        words = textwrap.shorten(f"{type(error).__name__}: {error}", WORDS)
        raise CompileFailed(f"{name} cannot be compiled: {words}") from error


def _opened(content: bytes, name: str) -> Any:
    # Torch reads a package from a path: from one in a folder of our own, which is no longer needed once it is loaded.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.pt2")
        path.write_bytes(content)
        # For one thread, on whatever device of the type there is.
        return torch._C._aoti.AOTIModelPackageLoader(str(path), "model", True, 1, -1)


def _key(device: torch.device, text: str, examples: tuple[Argument, ...], rows: tuple[int, ...]) -> str:
    """Of all that compiled code depends on."""
    # The compiler writes the number of threads into its loops.
    parts = [*machine(device), f"{torch.get_num_threads()} threads", text]
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
        hardware = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {_instructions()}"
    return __version__, sources.hexdigest(), torch.__version__, _triton(), hardware


def _instructions() -> str:
    """All that this processor can do, as Linux reports it: code is compiled for the very processor (-march=native), and
    ends the process on one that lacks an instruction.
    """
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _triton() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return "no triton"
