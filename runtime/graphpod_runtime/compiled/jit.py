"""Compilation in this process, for GPUs. Nothing of it is kept here: inductor keeps kernels and lowered graphs in a
folder of its own (TORCHINDUCTOR_CACHE_DIR), and every start traces again.

Packages made ahead of time were tried on a GPU with torch 2.11: the C++ of each function took over a minute to compile,
and held a C++ library of its own that crashed the process when it was loaded.
"""

from collections.abc import Callable
from contextlib import nullcontext
from types import FunctionType
from typing import Any, Protocol

import torch
from torch import Tensor

from graphpod_runtime.compiled.aot import ROWS, Argument, Function, TensorFunction, like, tensors_of

OPTIONS = {"combo_kernels": True, "combo_kernel_foreach_dynamic_shapes": True}
"""Of inductor: pointwise work on q, on k and on v is one launch."""


class Account(Protocol):
    """Whose functions are compiled, and what it learns of them."""

    sealed: bool
    """Nothing more may be compiled: what has no code for its arguments runs uncompiled."""

    def compiled(self) -> None:
        """A compilation begins."""

    def ran_uncompiled(self) -> None:
        """A function runs uncompiled, being sealed."""


def import_compiler() -> None:
    """What compiles for a GPU, which takes seconds to import."""
    import torch._dynamo
    import torch._inductor.compile_fx  # noqa: F401


def compile_now(
    name: str, function: Function, examples: tuple[Argument, ...], rows: tuple[int, ...], account: Account
) -> Callable[[list[Tensor]], tuple[Tensor, ...]]:
    """`function` of the tensors of `examples`, compiled for any number of rows, one included. `examples` and `rows` as
    for packages; their contents are never read.
    """
    from torch._inductor.compile_fx import compile_fx
    from torch.fx.experimental import _config as symbols

    torch._dynamo.config.fail_on_recompile_limit_hit = True  # it would run uncompiled, and say nothing
    tensors = tensors_of(examples)
    with_rows = [at for at, index in enumerate(tensors) if index in rows]

    def lowered(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        account.compiled()
        return compile_fx(graph, inputs, config_patches=OPTIONS)

    traced = TensorFunction(function, examples, rows)

    def call(*arguments: Tensor) -> tuple[Tensor, ...]:
        if not torch.compiler.is_compiling():  # never in compiled code
            account.ran_uncompiled()
        # By a comparison the compiler knows, too, that rows are one number. Each argument's would be a symbol of its
        # own, and a size computed of two of them no number: torch 2.11 refuses a function that slices such a dimension.
        if any(arguments[at].shape[0] != arguments[with_rows[0]].shape[0] for at in with_rows):
            raise ValueError(f"{name}: arguments differ in their number of rows")
        return traced.forward(*arguments)

    # A code object of its own: torch counts recompilations by it, over all functions that share one.
    own = FunctionType(call.__code__.replace(co_name=name), call.__globals__, name, None, call.__closure__)
    code = torch.compile(own, fullgraph=True, backend=lowered)

    def run(arguments: list[Tensor]) -> tuple[Tensor, ...]:
        # Detached: whether an argument is a parameter or a view is no reason to compile again.
        plain = [argument.detach() for argument in arguments]
        for at in with_rows:
            if plain[at].shape[0] > 1:
                torch._dynamo.mark_dynamic(plain[at], 0)
        # Of this call alone: other code of the process may compile.
        stance = torch.compiler.set_stance("eager_on_recompile") if account.sealed else nullcontext()
        with stance:
            results: tuple[Tensor, ...] = code(*plain)
        return results

    # Now, and for as many rows as kernels are to be chosen for: a capture cannot compile. What differed between two
    # functions of one name is no number of rows: by itself torch would make it dynamic in the second.
    with symbols.patch(backed_size_oblivious=True), torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        for size in (ROWS, 1):
            run([like(examples[index], size if index in rows else None) for index in tensors])
    return run
