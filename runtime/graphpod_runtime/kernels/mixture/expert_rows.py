"""Rows of a mixture of experts by our own kernels, on every GPU that multiplies in bfloat16.

One launch makes gate, up and activation, one makes down, and no token is copied.
"""

from functools import cache

import torch
from torch import Tensor

from graphpod_runtime.base.shapes import Activation
from graphpod_runtime.kernels.matrix_product import TRITON

CAPABLE = 8
"""Least major number of the compute capability of such GPUs."""

torch.library.define(
    "graphpod::expert_rows", "(Tensor x, Tensor gate_up, Tensor down, Tensor tokens, Tensor ends, bool gelu) -> Tensor"
)
"""An op of its own: its tiles depend on the number of rows, which the compiler leaves open."""


def expert_rows(
    x: Tensor, gate_up: Tensor, down: Tensor, tokens: Tensor, ends: Tensor, activation: Activation
) -> Tensor:
    """What the expert of each row makes of its token: x [tokens, hidden] -> [rows, hidden]. gate_up [experts,
    2 · width, hidden], gate above up, and down [experts, hidden, width]; `tokens` and `ends` are those of `Routes`.
    Only where `has_kernel` says so."""
    gelu = activation is Activation.GeluTanh
    result: Tensor = torch.ops.graphpod.expert_rows(x, gate_up, down, tokens, ends, gelu)
    return result


def has_kernel(x: Tensor) -> bool:
    """Whether our kernels compute it where x is, in its type."""
    return TRITON and x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and _capable(x.device)


def _capable(device: torch.device) -> bool:
    """A compiler takes it as a constant: it does not trace questions to a driver."""
    return _major(device) >= CAPABLE


# As torch.compiler.assume_constant_result does, which would import the compiler at every start: seconds, and 80 MB.
_capable._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _major(device: torch.device) -> int:
    return torch.cuda.get_device_capability(device)[0]


@cache
def _shared_memory(device: torch.device) -> int:
    """Bytes that a program may have."""
    found: int = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    return found


@torch.library.impl("graphpod::expert_rows", "cuda")
def _rows(x: Tensor, gate_up: Tensor, down: Tensor, tokens: Tensor, ends: Tensor, gelu: bool) -> Tensor:
    from graphpod_runtime.kernels.mixture.experts_triton import rows_into

    made, out = (x.new_empty(tokens.shape[0], size) for size in (down.shape[2], down.shape[1]))
    return rows_into(x.contiguous(), gate_up, down, tokens, ends, gelu, _shared_memory(x.device), made, out)


@torch.library.register_fake("graphpod::expert_rows")
def _shape(x: Tensor, gate_up: Tensor, down: Tensor, tokens: Tensor, ends: Tensor, gelu: bool) -> Tensor:
    return x.new_empty(tokens.shape[0], x.shape[1])
