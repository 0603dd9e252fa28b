"""Ahead-of-time compilation: a function of tensors becomes one package file. The only place that imports the compiler,
which takes seconds; it is imported when there is something to compile.
"""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphpod_runtime.base.errors import CompileFailed

Function = Callable[..., Any]
Argument = Tensor | int | torch.SymInt | None
"""An int is the number of rows; None and int are no arguments of what is compiled."""

ROWS, MOST_ROWS = 512, 1 << 15
"""Rows of the examples, which kernels are chosen for, and the most that compiled code takes: with that bound, and not
without, the compiler can prove that 32 bits count the elements of every tensor."""

OPTIONS = {"cpp.vec_isa_ok": True}
"""Of inductor. It need not compile test programs to see which vectors this processor has: 5 to 15 s."""


class TensorFunction(nn.Module):
    """`function` of tensors only, those of `examples`; its results as a tuple."""

    def __init__(self, function: Function, examples: tuple[Argument, ...], rows: tuple[int, ...]) -> None:
        super().__init__()
        self._function = function
        self._kinds = tuple(None if example is None else isinstance(example, Tensor) for example in examples)
        self._counted = tensors_of(examples).index(rows[0])

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        left, count = iter(tensors), tensors[self._counted].shape[0]
        arguments = [None if kind is None else next(left) if kind else count for kind in self._kinds]
        results = self._function(*arguments)
        return results if isinstance(results, tuple) else () if results is None else (results,)


def write_package(
    function: Function, examples: tuple[Argument, ...], rows: tuple[int, ...], path: Path, metadata: dict[str, str]
) -> None:
    """Compiles `function` for any number of rows from 1 to MOST_ROWS into the package `path` (a name in .pt2), which
    carries `metadata`. `examples[i].shape[0]` is the number of rows for i in `rows`; contents are never read.
    Raises whatever the compiler raises, and CompileFailed for a package that cannot be loaded.
    """
    from torch._inductor import aoti_compile_and_package
    from torch.export import Dim, export
    from torch.fx.experimental import _config as symbols

    count = Dim("rows", min=1, max=MOST_ROWS)
    tensors, dimensions = [], []
    for index in tensors_of(examples):
        tensors.append(like(examples[index], ROWS if index in rows else None))
        dimensions.append({0: count} if index in rows else None)
    # One row is a number of rows like any other; by default it would be compiled for by itself.
    with symbols.patch(backed_size_oblivious=True):
        traced = export(
            TensorFunction(function, examples, rows), tuple(tensors), dynamic_shapes=(tuple(dimensions),), strict=False
        )
        options = OPTIONS | {"aot_inductor.metadata": metadata}
        aoti_compile_and_package(traced, package_path=str(path), inductor_configs=options)
    _refuse_static_libraries(path)


def _refuse_static_libraries(path: Path) -> None:
    """CompileFailed for code with a C++ library of its own, in addition to torch's: it would crash the process when
    loaded."""
    with zipfile.ZipFile(path) as package:
        for name in package.namelist():
            if name.endswith(".so") and b"libstdc++.so.6" not in package.read(name):
                raise CompileFailed(
                    f"{path.stem}: the code does not refer to libstdc++.so.6; with a C++ library of its own it would "
                    "crash the process when it is loaded; name another compiler in CXX"
                )


def tensors_of(examples: tuple[Argument, ...]) -> list[int]:
    """Which examples are tensors."""
    return [index for index, example in enumerate(examples) if isinstance(example, Tensor)]


def like(example: Argument, rows: int | None) -> Tensor:
    """Zeros laid out as `example`, with `rows` rows."""
    assert isinstance(example, Tensor)
    shape = tuple(int(size) for size in example.shape)
    if rows is not None:
        shape = (rows, *shape[1:])
    strides = tuple(int(stride) for stride in example.stride())
    return torch.empty_strided(shape, strides, dtype=example.dtype, device=example.device).zero_()
