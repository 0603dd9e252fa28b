"""Which build of torch this machine gets, and from where: `python3 -m testbed.torch_build install|options`.

The engine on a CPU wants the build without CUDA, which the public Python index does not have. It comes from the first
`Way` that offers it. Where none does, the public index's CUDA build is taken, which runs on a CPU and is five times as
large. Each build has locks of its own, with hashes.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from testbed.command import run
from testbed.errors import TestbedError

ROOT = Path(__file__).resolve().parent.parent
PIN = re.search(r"^torch==(\S+)$", (ROOT / "locks" / "cpu.in").read_text(), re.MULTILINE)[1]  # type: ignore[index]
INDEX = re.search(r"^ARG TORCH_INDEX=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[1]  # type: ignore[index]
ANSWER_LIMIT = 3.0  # s for PyTorch's own index
LOOK_LIMIT = 120.0  # s for uv to ask the configured indexes
SYNC_LIMIT = 3600.0  # s; a slow line to the package index
UV = Path(sys.prefix) / "bin" / "uv"
UV_FILES = (Path("/etc/uv/uv.toml"), Path.home() / ".config" / "uv" / "uv.toml")


class Build(StrEnum):
    """Of torch; the words of `TORCH=`."""

    CPU = "cpu"
    CUDA = "cuda"

    @property
    def dev_lock(self) -> Path:
        return ROOT / "locks" / ("dev.txt" if self is Build.CPU else "dev-cuda.txt")

    @property
    def runtime_lock(self) -> str:
        """What the image `runtime` installs, as a path in the repository."""
        return f"locks/runtime-{self.value}.txt"


class Way(StrEnum):
    """Where torch comes from, in the order in which the places are tried."""

    FOLDER = "the folder TORCH_WHEELS"
    CONFIGURED = "the indexes that pip and uv are configured with"
    INDEX = "PyTorch's CPU index"
    PUBLIC = "the Python index"


@dataclass(frozen=True)
class Indexes:
    """Where packages are looked for. Empty: the installer's default."""

    index: str = ""
    extra: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.index or self.extra or self.links)

    def options(self) -> tuple[str, ...]:
        """For uv's command line, which does not read what pip is configured with."""
        words: tuple[str, ...] = ("--index-url", self.index) if self.index else ()
        for url in self.extra:
            words += ("--extra-index-url", url)
        for place in self.links:
            words += ("--find-links", place)
        return words

    def pip_conf(self) -> str:
        """The text of a pip.conf. `%` starts an interpolation there."""
        lines = ["[global]"]
        if self.index:
            lines.append(f"index-url = {self.index}")
        for name, values in (("extra-index-url", self.extra), ("find-links", self.links)):
            if values:
                lines += [f"{name} =", *(f"    {value}" for value in values)]
        return "\n".join(lines).replace("%", "%%") + "\n"


@dataclass(frozen=True)
class Choice:
    build: Build
    way: Way
    folder: Path | None = None

    def options(self) -> tuple[str, ...]:
        """What uv needs on its command line beyond the configured indexes."""
        if self.way is Way.FOLDER:
            return ("--find-links", str(self.folder))
        if self.way is Way.INDEX:
            return ("--extra-index-url", INDEX, "--index-strategy", "unsafe-best-match")
        return ("--index-strategy", "unsafe-best-match")

    def __str__(self) -> str:
        if self.build is Build.CPU:
            return f"torch {PIN} from {self.way}"
        return f"torch {PIN.partition('+')[0]} for CUDA from {self.way}: 4.7 GB installed; it runs on a CPU as well"


def choose(
    wanted: Build | None,
    folder: Path | None,
    configured: Callable[[], bool],
    index: Callable[[], bool],
) -> Choice:
    """The first way that has torch. `configured` and `index` are asked only when the ways before them have nothing.

    Raises `TestbedError` when the CPU build is wanted and no way has it.
    """
    if wanted is not Build.CUDA:
        if folder is not None and has_wheel(folder):
            return Choice(Build.CPU, Way.FOLDER, folder)
        if configured():
            return Choice(Build.CPU, Way.CONFIGURED)
        if index():
            return Choice(Build.CPU, Way.INDEX)
    if wanted is Build.CPU:
        place = f"TORCH_WHEELS={folder} does not hold it" if folder else "TORCH_WHEELS is not set"
        raise TestbedError(
            f"no torch {PIN} was found: {place}, the configured indexes do not have it, and {Way.INDEX} did not offer"
            f" it in {ANSWER_LIMIT:.0f} s. Set TORCH_WHEELS to a folder that holds the wheel, or set TORCH=cuda"
        )
    return Choice(Build.CUDA, Way.PUBLIC)


def choice(environ: Mapping[str, str], wanted: Build | None = None) -> Choice:
    """`choose` on this machine. `wanted` overrides the environment's `TORCH`."""
    asked = wanted or asked_for(environ)
    text = environ.get("TORCH_WHEELS", "")
    folder = Path(text).resolve() if text else None
    return choose(asked, folder, lambda: configured_has_it(environ), index_answers)


def asked_for(environ: Mapping[str, str]) -> Build | None:
    """`TORCH` of the environment; None when it is unset."""
    word = environ.get("TORCH", "")
    if word and word not in tuple(Build):
        raise TestbedError(f"TORCH={word} is not a build of torch: set TORCH=cpu or TORCH=cuda, or leave it unset")
    return Build(word) if word else None


def installed() -> Build:
    """The build in the environment that runs this; the CPU's where there is none."""
    try:
        return Build.CPU if version("torch").endswith("+cpu") else Build.CUDA
    except PackageNotFoundError:
        return Build.CPU


def has_wheel(folder: Path) -> bool:
    return any(folder.glob(f"torch-{PIN}-cp311-*x86_64.whl"))


def configured_has_it(environ: Mapping[str, str]) -> bool:
    """Do the indexes of pip's and uv's configuration offer the CPU build, within LOOK_LIMIT? Nothing is installed."""
    dry = ("--quiet", "--dry-run", "--no-deps", "--reinstall", "--python", sys.executable)
    command = [str(UV), "pip", "install", *dry]
    asked = [*command, "--index-strategy", "unsafe-best-match", *uv_options(environ), f"torch=={PIN}"]
    try:
        done = subprocess.run(asked, capture_output=True, timeout=LOOK_LIMIT, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def index_answers(url: str = INDEX, limit: float = ANSWER_LIMIT) -> bool:
    """Does PyTorch's CPU index list the wheel, within `limit` seconds?"""
    try:
        with urllib.request.urlopen(f"{url}/torch/", timeout=limit) as answer:
            return f"torch-{PIN.replace('+', '%2B')}-cp311-" in answer.read().decode(errors="replace")
    except (urllib.error.URLError, OSError, ValueError):
        return False


def configured(environ: Mapping[str, str]) -> Indexes:
    """uv's own configuration where it has one, else pip's."""
    return of_uv(environ, UV_FILES) or of_pip(run([sys.executable, "-m", "pip", "config", "list"], timeout=60.0))


def uv_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """pip's indexes as options for uv; nothing where uv is configured itself."""
    return () if of_uv(environ, UV_FILES) else configured(environ).options()


def of_pip(listed: str) -> Indexes:
    """From what `pip config list` prints. The environment comes before `[install]`, and that before `[global]`."""
    found: dict[str, str] = {}
    for place in ("global", "install", ":env:"):
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(f"{place}."):
                found[name.removeprefix(f"{place}.")] = str(ast.literal_eval(value))
    many = {name: tuple(found.get(name, "").split()) for name in ("extra-index-url", "find-links")}
    return Indexes(found.get("index-url", ""), many["extra-index-url"], many["find-links"])


def of_uv(environ: Mapping[str, str], files: Sequence[Path]) -> Indexes:
    """From uv's variables and configuration files; the last file that exists counts most, variables before all."""
    index, extra, links = "", (), ()
    for file in files:
        if file.is_file():
            table = tomllib.loads(file.read_text())
            table |= table.get("pip", {})
            urls = table.get("index", [])
            index = next((one["url"] for one in urls if one.get("default")), table.get("index-url", index))
            listed = tuple(one["url"] for one in urls if not one.get("default"))
            extra = listed or tuple(table.get("extra-index-url", extra))
            links = tuple(table.get("find-links", links))
    index = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or index
    named = (environ.get("UV_INDEX") or environ.get("UV_EXTRA_INDEX_URL") or "").split()
    return Indexes(
        index,
        tuple(re.sub(r"^[\w-]+=", "", word) for word in named) or extra,  # an index may have a name
        tuple(environ.get("UV_FIND_LINKS", "").replace(",", " ").split()) or links,
    )


def install(environ: Mapping[str, str]) -> None:
    """Bring the environment that runs this to the lock of the chosen build, and install the project into it."""
    found = choice(environ)
    lock, options = found.build.dev_lock, [*uv_options(environ), *found.options()]
    print(f"venv: {found}")
    print(f"venv: installing {lock.read_text().count('==')} packages from {lock.relative_to(ROOT)} …")
    uv("sync", "--require-hashes", *options, lock)
    uv("install", "--no-deps", *options, "--editable", ROOT)


def uv(verb: str, *words: str | Path) -> None:
    """`uv pip VERB` on the environment that runs this."""
    remedy = "can this machine reach the Python index that pip or uv is configured with?"
    run([UV, "pip", verb, "--quiet", "--python", sys.executable, *words], timeout=SYNC_LIMIT, remedy=remedy)


def main(argv: Sequence[str]) -> int:
    """Exit status: 0, 1 a `TestbedError` (printed), 2 wrong usage."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(prog="python3 -m testbed.torch_build", description=__doc__)
    parser.add_argument("verb", choices=("install", "options"), help="into this environment; or uv's options for it")
    verb = parser.parse_args(argv).verb
    try:
        if verb == "install":
            install(os.environ)
        else:
            print(" ".join([*uv_options(os.environ), *choice(os.environ, Build.CPU).options()]))
    except TestbedError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
