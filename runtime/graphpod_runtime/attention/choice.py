"""Which attention backend an engine runs."""

from importlib.util import find_spec

import torch

from graphpod_runtime.attention.base import Backend
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.models.base import ModelShape

KERNEL_DTYPES = (torch.bfloat16, torch.float16)
HEAD_DIMS = (64, 128)
"""What flashinfer's kernels are built for here."""
HOPPER = (9, 0)


def attention_for(shape: ModelShape, dtype: torch.dtype, device: torch.device) -> Backend:
    """flashinfer where it has a kernel for `shape` and `dtype`, else scaled_dot_product_attention."""
    if (
        device.type != "cuda"
        or dtype not in KERNEL_DTYPES
        or shape.head_dim not in HEAD_DIMS
        or find_spec("flashinfer") is None
    ):
        return TorchAttention(shape)
    from graphpod_runtime.attention.flashinfer import FlashInferAttention

    # fa3 needs Hopper; from 512 tokens up it takes half the time of fa2 there, and it is built for head_dim 128.
    hopper = torch.cuda.get_device_capability(device) == HOPPER
    return FlashInferAttention(shape, dtype, device, prefill="fa3" if hopper and shape.head_dim == 128 else "fa2")
