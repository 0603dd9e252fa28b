"""The locks are what pyproject.toml asks for, pinned, hashed and free of addresses."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
LOCKS = {
    "operator.txt": "operator",
    "runtime-cpu.txt": "runtime",
    "runtime-cuda.txt": "gpu",
    "dev.txt": "dev",
    "dev-cuda.txt": "dev",
}
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ \\]+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def pins(lock: str) -> dict[str, str]:
    return {name: version for name, version, _ in PIN.findall((ROOT / "locks" / lock).read_text())}


def wanted(extra: str) -> list[Requirement]:
    """Requirements of the base and of an extra, extras of our own resolved."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [Requirement(text) for text in project["dependencies"]]
    waiting, seen = [extra], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for requirement in map(Requirement, project["optional-dependencies"][name]):
            if requirement.name == project["name"]:
                waiting.extend(requirement.extras)
            else:
                found.append(requirement)
    return found


@pytest.mark.parametrize(("lock", "extra"), LOCKS.items())
def test_a_lock_holds_every_requirement_of_its_extra_within_its_range(lock: str, extra: str) -> None:
    there = pins(lock)
    for requirement in wanted(extra):
        version = there.get(canonicalize_name(requirement.name))
        assert version is not None, f"{lock} lacks {requirement}: run `make lock`"
        assert requirement.specifier.contains(version), f"{lock} has {version}, not {requirement}: run `make lock`"


@pytest.mark.parametrize("lock", [*LOCKS, "docs.txt", "uv.txt"])
def test_a_lock_is_nothing_but_pinned_and_hashed_packages(lock: str) -> None:
    text = (ROOT / "locks" / lock).read_text()
    assert PIN.sub("", text) == ""
    assert "://" not in text


def test_the_documentations_lock_holds_its_group_and_nothing_of_it_is_in_the_images() -> None:
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["docs"]
    there = pins("docs.txt")
    assert group
    for requirement in map(Requirement, group):
        assert requirement.specifier.contains(there[canonicalize_name(requirement.name)])
    for lock in LOCKS:
        assert [name for name in pins(lock) if name.startswith("mkdocs")] == []


@pytest.mark.parametrize("lock", ["runtime-cpu.txt", "dev.txt"])
def test_torch_comes_without_cuda(lock: str) -> None:
    there = pins(lock)
    assert there["torch"].endswith("+cpu")
    assert [name for name in there if name.startswith(("nvidia-", "cuda-", "triton"))] == []


def test_torch_of_the_gpu_is_the_same_version_built_for_cuda() -> None:
    cpu, cuda = pins("runtime-cpu.txt"), pins("runtime-cuda.txt")
    assert cpu["torch"] == f"{cuda['torch']}+cpu"
    assert {"nvidia-cublas", "nvidia-nccl-cu13", "triton"} <= cuda.keys()


def test_the_environment_with_torch_for_cuda_is_the_other_one_in_everything_else() -> None:
    cpu, cuda = pins("dev.txt"), pins("dev-cuda.txt")
    assert cpu["torch"] == f"{cuda['torch']}+cpu"
    assert {name: cuda.get(name) for name in cpu if name != "torch"} == {
        name: version for name, version in cpu.items() if name != "torch"
    }


def test_flashinfer_brings_no_compilers_and_no_kernels_for_other_chips() -> None:
    there = pins("runtime-cuda.txt")
    assert {"apache-tvm-ffi", "nvidia-ml-py"} <= there.keys()
    assert [name for name in there if name.startswith(("nvidia-cutlass", "nvidia-cuda-nvcc", "cuda-tile"))] == []


def test_the_operator_needs_no_torch() -> None:
    assert "torch" not in pins("operator.txt")


def test_locks_agree_with_each_other() -> None:
    dev = pins("dev.txt")
    for lock in ("operator.txt", "runtime-cpu.txt", "uv.txt"):
        assert {name: dev.get(name) for name in pins(lock)} == pins(lock)
    cuda = pins("runtime-cuda.txt")
    assert {name: cuda.get(name) for name in pins("runtime-cpu.txt") if name != "torch"} == {
        name: version for name, version in pins("runtime-cpu.txt").items() if name != "torch"
    }
