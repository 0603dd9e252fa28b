"""flashinfer's kernels for the image: where they are looked for, and what is said when they are not there."""

import tarfile
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.images import cuda_image


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A folder laid out as flashinfer's own cache, with one kernel."""
    kernel = tmp_path / "cache" / cuda_image.FLASHINFER / "90a" / "cached_ops" / "norm" / "norm.so"
    kernel.parent.mkdir(parents=True)
    kernel.write_bytes(b"code")
    return tmp_path / "cache"


def kernels(place: Path | None) -> tuple[list[str] | None, list[str]]:
    """What the build would be given, and what was said."""
    said: list[str] = []
    with cuda_image.unpacked(place, said.append) as found:
        return (None if found is None else [f.name for f in found.rglob("*.so")]), said


def test_kernels_are_found_in_a_folder(cache: Path) -> None:
    assert kernels(cache) == (["norm.so"], [])


def test_kernels_are_found_in_an_archive_of_that_folder(cache: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "kernels.tgz", "w:gz") as tar:
        tar.add(cache, ".")
    assert kernels(tmp_path / "kernels.tgz") == (["norm.so"], [])


def test_kernels_of_another_version_are_refused(cache: Path) -> None:
    (cache / cuda_image.FLASHINFER).rename(cache / "0.1.0")
    with pytest.raises(TestbedError, match=r"holds no 0\.6\.13/ARCHITECTURE/cached_ops"):
        kernels(cache)


def test_kernels_that_the_base_cannot_load_are_left_out_and_that_is_said(cache: Path) -> None:
    (kernel,) = cache.rglob("*.so")
    kernel.write_bytes(b"\0GLIBC_2.2.5\0GLIBC_2.14\0GLIBC_2.38\0")
    found, said = kernels(cache)
    assert found is None
    assert "they need glibc 2.38, Debian 12 has 2.36" in said[0]


def test_without_kernels_the_image_is_built_and_that_is_said(tmp_path: Path) -> None:
    assert kernels(None) == (None, ["flashinfer's kernels: not given; the image is built without them"])
    absent = tmp_path / "absent.tgz"
    assert kernels(absent) == (None, [f"flashinfer's kernels: {absent} is not there; the image is built without them"])


def test_the_version_is_that_of_the_lock() -> None:
    assert f"flashinfer-python=={cuda_image.FLASHINFER} " in Path("locks/runtime-cuda.txt").read_text()
