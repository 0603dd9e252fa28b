"""Suites as their projects publish them: source archives of the Python index, by version and hash, in the cache.

uv finds an archive's address on whatever index it is configured with. It gets the package's metadata from us: it would
otherwise build the package, which for an engine means to compile it.
"""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.paths import cache_root

TABLE = Path(__file__).with_name("suites.toml")
FIND_SECONDS = 120
READ_SECONDS = 120
"""Without a byte."""
PIECE = 1 << 20

Say = Callable[[str], None]


class SuiteMissing(Exception):
    """A suite cannot be had; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite of the table. `files` hold tests, `support` what those import; both as paths below `root`."""

    name: str
    package: str
    version: str
    sha256: str
    root: str
    support: tuple[str, ...]
    files: tuple[str, ...]


def suites() -> dict[str, Suite]:
    """The table, by name."""
    rows = tomllib.loads(TABLE.read_text())
    return {
        name: Suite(name, **(row | {"support": tuple(row["support"]), "files": tuple(row["files"])}))
        for name, row in rows.items()
    }


def archive(suite: Suite, say: Say = print) -> Path:
    """The suite's source archive, fetched when the cache does not hold it. SuiteMissing for another hash."""
    target = cache_root() / "peers" / f"{suite.package}-{suite.version}.tar.gz"
    if target.exists() and _sha256(target) == suite.sha256:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    say(f"fetching the sources of {suite.package} {suite.version} from the Python package index")
    with tempfile.TemporaryDirectory(prefix=".fetch.", dir=target.parent) as folder:
        found = Path(folder) / target.name
        _download(_address(suite, Path(folder)), found)
        if (digest := _sha256(found)) != suite.sha256:
            raise SuiteMissing(
                f"the sources of {suite.package} {suite.version} have sha256 {digest}, expected {suite.sha256}; check "
                "the package index"
            )
        found.rename(target)
    return target


def lay(suite: Suite, folder: Path, say: Say = print) -> Path:
    """Lays the suite's files out as `folder`/tests, unmodified; returns that folder. SuiteMissing for a file that the
    archive lacks.
    """
    target = folder / "tests"
    with tarfile.open(archive(suite, say)) as packed:
        members = {member.name: member for member in packed.getmembers() if member.isfile()}
        for path in (*suite.support, *suite.files):
            whole = f"{suite.root}/{path}"
            taken = [name for name in members if name == whole or name.startswith(f"{whole}/")]
            if not taken:
                raise SuiteMissing(f"{whole} is not in the sources of {suite.package} {suite.version}")
            for name in taken:
                place = target / name.removeprefix(f"{suite.root}/")
                place.parent.mkdir(parents=True, exist_ok=True)
                source = packed.extractfile(members[name])
                assert source is not None, name
                place.write_bytes(source.read())
    return target


def _address(suite: Suite, folder: Path) -> str:
    settings = folder / "uv.toml"
    settings.write_text(
        f'[[dependency-metadata]]\nname = "{suite.package}"\nversion = "{suite.version}"\nrequires-dist = []\n'
    )
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-deps", "--no-header", "-"]
    options = ["--no-binary", suite.package, "--config-file", str(settings), "--format", "pylock.toml"]
    wanted = f"{suite.package}=={suite.version}"
    done = subprocess.run(
        [*command, *options], input=wanted, capture_output=True, text=True, timeout=FIND_SECONDS, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["uv said nothing"]
        raise SuiteMissing(f"uv does not find the sources of {wanted}: {last[0]}; check uv's index settings")
    source = tomllib.loads(done.stdout)["packages"][0].get("sdist", {})
    if "url" not in source:
        raise SuiteMissing(f"the package index has no sources of {wanted}; use an index that has them")
    return str(source["url"])


def _download(address: str, target: Path) -> None:
    try:
        with urllib.request.urlopen(address, timeout=READ_SECONDS) as answer, target.open("wb") as file:
            while piece := answer.read(PIECE):
                file.write(piece)
    except OSError as error:
        raise SuiteMissing(f"{target.name} was not fetched: {error}; check the network and run again") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
