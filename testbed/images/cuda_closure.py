"""Runs inside the image runtime-cuda, where no GPU is: what can be known there without one. Each step prints a line.

Every module of the engine is imported with torch, triton and flashinfer. gcc compiles Triton's launcher, as Triton
does at its first kernel, against a libcuda of empty functions; Triton compiles a kernel down to machine code for an
H100 and keeps it in its cache folder, since nothing but /tmp is writable; one of flashinfer's kernels is loaded.
"""

import ctypes
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

os.environ["FLASHINFER_CUDA_ARCH_LIST"] = "9.0a"  # it asks the GPU otherwise

import flashinfer
import torch
import torch._inductor.runtime.cache_dir_utils as inductor
import triton
import triton.backends.nvidia.driver as nvidia
import triton.language as tl
from flashinfer.jit.norm import gen_norm_module
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import graphpod_runtime


@triton.jit
def double(values, size: tl.constexpr):
    places = tl.arange(0, size)
    tl.store(values + places, tl.load(values + places) * 2)


def engine() -> str:
    names = [m.name for m in pkgutil.walk_packages(graphpod_runtime.__path__, "graphpod_runtime.")]
    for name in names:
        importlib.import_module(name)
    return f"{len(names)} modules imported"


def no_gpu() -> str:
    assert not torch.cuda.is_available()
    return f"torch {torch.__version__} for CUDA {torch.version.cuda}, which finds no GPU here"


def root_is_read_only() -> str:
    for place in ("/", "/usr/local/lib/python3.11/dist-packages", "/graphpod"):
        assert not os.access(place, os.W_OK), f"{place} is writable"
    return f"as user {os.getuid()}"


def launcher() -> str:
    source = Path(nvidia.dirname, "driver.c").read_text()
    stub = Path("/tmp/stub")
    stub.mkdir()
    functions = sorted(set(re.findall(r"\b(cu[A-Z]\w+)\s*\(", source)))
    (stub / "cuda.c").write_text("\n".join(f"int {name}() {{ return 100; }}" for name in functions))
    library = stub / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, stub / "cuda.c"], check=True)
    ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    os.environ["TRITON_LIBCUDA_PATH"] = str(stub)
    utilities = nvidia.CudaUtils()
    return f"compiled and loaded, it has {utilities.launch.__name__}()"


def kernel() -> str:
    source = ASTSource(fn=double, signature={"values": "*fp32", "size": "constexpr"}, constexprs={(1,): 128})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    return f"{len(compiled.asm['cubin'])} bytes of machine code for sm_90a"


def caches() -> str:
    found, places = [], {"triton": Path(os.environ["TRITON_CACHE_DIR"]), "inductor": Path(inductor.cache_dir())}
    assert any(places["triton"].rglob("*.cubin")), f"the kernel is not kept in {places['triton']}"
    for name, place in places.items():
        place.mkdir(parents=True, exist_ok=True)
        found.append(f"{name} {sum(f.is_file() for f in place.rglob('*'))} files in {place}")
    return ", ".join(found)


def kernels_ahead_of_time() -> str:
    spec = gen_norm_module()
    there = sorted(f.stem for f in Path(flashinfer.__file__).parent.joinpath("data/aot").rglob("*.so"))
    if not there:
        return "none in this image: flashinfer cannot be used"
    assert spec.is_aot, f"flashinfer does not look at {spec.aot_path}"
    spec.build_and_load()
    return f"{len(there)}, one loaded"


STEPS = (root_is_read_only, no_gpu, engine, launcher, kernel, caches, kernels_ahead_of_time)


def main() -> int:
    print(f"flashinfer {flashinfer.__version__}, triton {triton.__version__}")
    for step in STEPS:
        print(f"{step.__name__.replace('_', ' ')}: {step()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
