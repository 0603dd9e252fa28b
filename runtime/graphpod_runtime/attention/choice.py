"""Which attention backend an engine runs."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from graphpod_policy import AttentionBackend as Asked
from graphpod_runtime.attention.base import Backend
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.models.base import ModelShape

FIELD = "spec.engine.attention"
HOPPER = (9, 0)


class AttentionUnavailable(Exception):
    """What was asked for cannot be served here. The message names the field, the reason and what to do."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A backend, and why it is this one, for people. `reads_whole_tables`: a captured step attends over the whole block
    table of every sequence.
    """

    backend: Backend
    because: str
    reads_whole_tables: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What attention is wanted for: a model, the types of activations and of the KV cache, a device."""

    shape: ModelShape
    dtype: torch.dtype
    kv_dtype: torch.dtype
    device: torch.device


def attention_for(work: Work, asked: Asked) -> Chosen:
    """What `asked` names, or AttentionUnavailable. Auto: flashinfer where it has kernels for `work`, else
    scaled_dot_product_attention, which does all work.
    """
    if asked is Asked.Torch:
        return _torch(work, f"{FIELD} is Torch")
    if asked not in (Asked.Auto, Asked.FlashInfer, Asked.Fa3):
        raise AttentionUnavailable(
            f"{FIELD}: {asked} is not built in this version; use one of Auto, Torch, FlashInfer, Fa3"
        )
    obstacle = _obstacle(work)
    if obstacle is None:
        from graphpod_runtime.attention.flashinfer import FlashInferAttention

        # From 512 tokens up fa3 takes half the time of fa2.
        no_fa3 = _no_fa3(work)
        if no_fa3 is None or asked is not Asked.Fa3:
            prefill = "fa2" if no_fa3 else "fa3"
            because = no_fa3 or "the fastest there is for this model on this GPU"
            return Chosen(FlashInferAttention(work.shape, work.dtype, work.device, prefill), because)
        obstacle = no_fa3
    if asked is Asked.Auto:
        return _torch(work, obstacle)
    raise AttentionUnavailable(f"{FIELD}: {asked} cannot be served: {obstacle}; set it to Auto or Torch")


def _torch(work: Work, because: str) -> Chosen:
    return Chosen(TorchAttention(work.shape), because, reads_whole_tables=work.device.type == "cuda")


def _obstacle(work: Work) -> str | None:
    """Why flashinfer cannot do `work` here."""
    if work.device.type != "cuda":
        return "flashinfer's kernels run on a GPU"
    if work.dtype not in (torch.bfloat16, torch.float16):
        return f"flashinfer's kernels take 16-bit activations, this engine's are {_name(work.dtype)}"
    if work.shape.windowed:
        return f"layers of {work.shape.architecture} attend to a window, which is not built with flashinfer"
    if find_spec("flashinfer") is None:
        return "the package flashinfer is not installed"
    return _missing("fa2", work)


def _no_fa3(work: Work) -> str | None:
    """Why flashinfer prefills by fa2 instead."""
    if torch.cuda.get_device_capability(work.device) != HOPPER:
        return "flashinfer's fa3 kernels are for Hopper GPUs"
    if work.kv_dtype != work.dtype:
        return f"flashinfer's fa3 kernels want a KV cache in {_name(work.dtype)}"
    return _missing("fa3", work)


def _missing(backend: str, work: Work) -> str | None:
    """Names the kernels of `backend` for `work` unless they are built: compiling them takes a minute and a compiler,
    and a pod has neither.
    """
    from flashinfer.jit import env
    from flashinfer.jit.attention.modules import get_batch_prefill_uri

    width = work.shape.head_dim
    plain = 0, False, False, False  # positions, window, cap on logits, 16-bit scores
    name = get_batch_prefill_uri(backend, work.dtype, work.kv_dtype, work.dtype, torch.int32, width, width, *plain)
    if (Path(env.FLASHINFER_AOT_DIR) / name / f"{name}.so").is_file():
        return None
    return (
        f"flashinfer's {backend} kernels for heads of {width}, activations in {_name(work.dtype)} and a KV cache in "
        f"{_name(work.kv_dtype)} are not built here (no {name} in {env.FLASHINFER_AOT_DIR})"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
