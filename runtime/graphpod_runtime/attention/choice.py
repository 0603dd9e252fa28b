"""The attention backend that an engine runs: which one is decided in `graphpod_policy.attention`."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from graphpod_policy import Architecture, Device, Kernels
from graphpod_policy import AttentionBackend as Asked
from graphpod_policy import attention as policy
from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.attention.flashinfer_parts import import_parts
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.attention.trees import TreeAttention
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.kernels.fatbin import UnreadableLibrary, architectures_of
from graphpod_runtime.kernels.matrix_product import TRITON


class AttentionUnavailable(Exception):
    """What was asked for cannot be served here. The message names the field and the reason."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A backend, and why it is this one, for people. `reads_whole_tables`: a captured step attends over the whole block
    table of every sequence.
    """

    backend: AttentionBackend
    because: str
    reads_whole_tables: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What attention is wanted for: a model, the types of activations and of the KV cache, a device."""

    shape: ModelShape
    dtype: torch.dtype
    kv_dtype: torch.dtype
    device: torch.device
    sinks: tuple[Tensor | None, ...] = ()
    """Of each layer, where heads have them."""
    shared: bool = False
    """Rows of a decode step may be of one sequence, as drafts are."""
    trees: bool = False
    """Such rows may be kept from seeing some of those in front of them."""


def attention_for(work: Work, asked: Asked) -> Chosen:
    """What `asked` names, or AttentionUnavailable."""
    shape, cuda = work.shape, work.device.type == "cuda"
    choice = policy.attention_for(
        policy.Work(
            device=Device.Cuda if cuda else Device.Cpu,
            dtype=_name(work.dtype),
            kv_dtype=_name(work.kv_dtype),
            architecture=shape.architecture,
            head_dim=shape.head_dim,
            windowed=shape.windowed,
            plain_scores=shape.plain_scores,
            capability=torch.cuda.get_device_capability(work.device) if cuda else None,
            kernels=kernels_for(shape.head_dim, work.dtype, work.kv_dtype) if cuda else None,
            triton=TRITON,
        ),
        asked,
    )
    match choice.kernels:
        case None:
            raise AttentionUnavailable(choice.because)
        case policy.AttentionKernels.Torch:
            if not cuda or choice.reads_whole_tables:
                torch_only = TreeAttention if work.trees else TorchAttention
                return Chosen(torch_only(shape, sinks=work.sinks), choice.because, choice.reads_whole_tables)
            from graphpod_runtime.attention.paged_decode import PagedDecode

            decode = PagedDecode(shape, work.dtype, work.device, shared=work.shared, trees=work.trees)
            return Chosen(TorchAttention(shape, decode), choice.because)
        case prefill:
            from graphpod_runtime.attention.flashinfer import FlashInferAttention
            from graphpod_runtime.attention.paged_decode import PagedDecode

            decode = PagedDecode(shape, work.dtype, work.device, shared=work.shared, trees=work.trees)
            backend = FlashInferAttention(shape, work.dtype, work.kv_dtype, work.device, prefill.value, decode)
            return Chosen(backend, choice.because)


def kernels_for(head_dim: int, dtype: torch.dtype, kv_dtype: torch.dtype) -> Kernels:
    """flashinfer's kernels that are built here, and for which GPUs, as their files show: compiling others takes a
    minute and a compiler, and a pod has neither.
    """
    if find_spec("flashinfer") is None:
        return Kernels(fa2=(), fa3=(), installed=False)
    if dtype not in (torch.bfloat16, torch.float16):
        return Kernels(fa2=(), fa3=())
    import_parts()
    from flashinfer.jit import env
    from flashinfer.jit.attention.modules import get_batch_prefill_uri

    unusable: list[str] = []

    def built(backend: str) -> tuple[Architecture, ...]:
        plain = 0, False, False, False  # positions, window, cap on logits, 16-bit scores
        name = get_batch_prefill_uri(backend, dtype, kv_dtype, dtype, torch.int32, head_dim, head_dim, *plain)
        library = Path(env.FLASHINFER_AOT_DIR) / name / f"{name}.so"
        if not library.is_file():
            return ()
        try:
            return architectures_of(library)
        except (UnreadableLibrary, OSError) as error:
            unusable.append(str(error))
            return ()

    fa2, fa3 = built("fa2"), built("fa3")
    return Kernels(fa2, fa3, where="; ".join((f"looked for in {env.FLASHINFER_AOT_DIR}", *unusable)))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
