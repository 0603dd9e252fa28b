"""Which kernels compute attention, or why what was asked for cannot be had. Pure: engine and explain ask the same."""

from dataclasses import dataclass
from enum import StrEnum

from graphpod_policy.enums import AttentionBackend, Device
from graphpod_policy.node import HOPPER, Architecture, Capability, Kernels

FIELD = "spec.engine.attention"

BUILT_AHEAD: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "fa2": ((64, 128), (64, 128)),
    "fa3": ((128,), ()),
}
"""Head sizes of the kernels that the engine's image can have (docs/contributing/images.md): over a KV cache of the
activations' type, and over one in FP8.
"""
BUILT_FOR = (Architecture(HOPPER),)
"""What those kernels are compiled for. An engine reads it from its own; before there is one, this is assumed."""
TRITON, TRITON_FP8 = (8, 0), (8, 9)
"""Compute capability from which Triton is supported, and from which it has e4m3."""
FEW_ROWS = 4
"""Batches of decode that do not fill a GPU by their rows."""
DECODE_PARTS, FEW_PARTS = 16, 32
"""Into which our decode kernel cuts the context of a row, at most, and that of one of a few rows. They leave their sums
in memory for each other."""
BUILT_DTYPE = "bfloat16"
"""The activations that they take."""


def most_parts(rows: int) -> int:
    """Of a decode pass over at most `rows` rows, all rows together."""
    return max(DECODE_PARTS * rows, FEW_PARTS * min(rows, FEW_ROWS))


@dataclass(frozen=True, slots=True)
class Work:
    """What attention is wanted for. Types by their names in torch. None: not known, and nothing is held against it."""

    device: Device
    dtype: str
    kv_dtype: str
    architecture: str = ""
    head_dim: int | None = None
    windowed: bool = False
    plain_scores: bool = True
    """Whether scores go to the softmax as they are: neither capped nor with sinks."""
    capability: Capability | None = None
    kernels: Kernels | None = None
    triton: bool = True
    """Whether the engine's environment has it."""


class AttentionKernels(StrEnum):
    """What runs."""

    Torch = "torch"
    """scaled_dot_product_attention, which takes every model, device and dtype; on most GPUs our kernel decodes."""
    Fa2 = "fa2"
    """flashinfer's, for any GPU."""
    Fa3 = "fa3"
    """flashinfer's, for Hopper."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What runs and why, for people; `kernels` is None where the request cannot be served, and `because` says why."""

    kernels: AttentionKernels | None
    because: str
    reads_whole_tables: bool = False
    """Whether a captured decode step attends over the whole block table of every sequence."""


def attention_for(work: Work, asked: AttentionBackend) -> Choice:
    """What `asked` names. Auto: flashinfer where it has kernels for `work`, else torch."""
    if asked is AttentionBackend.Torch:
        return _torch(work, f"{FIELD} is Torch")
    if asked is AttentionBackend.Triton:
        return Choice(None, f"{FIELD}: {asked} is not built in this version")
    # From 512 tokens up fa3 takes half the time of fa2.
    obstacle, no_fa3 = _no_flashinfer(work), _no_fa3(work)
    if obstacle is None and asked is AttentionBackend.Fa3:
        obstacle = no_fa3
    if obstacle is None:
        obstacle = _no_kernels(work)
    if obstacle is None and no_fa3 is None:
        no_fa3 = _not_built("fa3", work)
        if asked is AttentionBackend.Fa3:
            obstacle = no_fa3
    if obstacle is None and (no_decode := _no_decode(work)) is not None:
        obstacle = f"our own kernel decodes alongside flashinfer's, and {no_decode}"
    if obstacle is None:
        if no_fa3 is None:
            return Choice(AttentionKernels.Fa3, "the fastest there is for this model on this GPU")
        return Choice(AttentionKernels.Fa2, no_fa3)
    if asked is AttentionBackend.Auto:
        return _torch(work, obstacle)
    return Choice(None, f"{FIELD}: {asked} cannot be served: {obstacle}")


def _torch(work: Work, because: str) -> Choice:
    """Torch prefills; on a GPU for which Triton compiles, our own kernel decodes. A GPU that is not known is one."""
    if work.device is not Device.Cuda or (no_decode := _no_decode(work)) is None:
        return Choice(AttentionKernels.Torch, because)
    return Choice(AttentionKernels.Torch, f"{because}; torch decodes, too: {no_decode}", reads_whole_tables=True)


def _no_decode(work: Work) -> str | None:
    """Why our own kernel cannot decode on this GPU."""
    if not work.plain_scores:
        return f"scores of {work.architecture} are capped or have sinks, which our kernel does not compute"
    if not work.triton:
        return "the package triton is not installed"
    fp8 = work.kv_dtype.startswith("float8")
    least = TRITON_FP8 if fp8 else TRITON
    if work.capability is None or work.capability >= least:
        return None
    return f"Triton supports {'FP8' if fp8 else 'GPUs'} from compute capability {least[0]}.{least[1]} on"


def built_ahead(head_dim: int, dtype: str, fp8: bool) -> Kernels:
    """The kernels that the engine's image can have for heads of `head_dim` and activations in `dtype`."""
    fa2, fa3 = (dtype == BUILT_DTYPE and head_dim in BUILT_AHEAD[name][fp8] for name in ("fa2", "fa3"))
    return Kernels(BUILT_FOR if fa2 else (), BUILT_FOR if fa3 else ())


def _no_flashinfer(work: Work) -> str | None:
    """Why flashinfer cannot do `work`, wherever its kernels are."""
    if work.device is not Device.Cuda:
        return "flashinfer's kernels run on a GPU"
    if work.dtype not in ("bfloat16", "float16"):
        return f"flashinfer's kernels take 16-bit activations, and this engine's are {work.dtype}"
    if not work.plain_scores:
        return f"scores of {work.architecture} are capped or have sinks, which is not built with flashinfer"
    if work.windowed:
        return f"layers of {work.architecture} attend to a window, which is not built with flashinfer"
    return None


def _no_fa3(work: Work) -> str | None:
    """Why flashinfer prefills by fa2 instead."""
    if work.capability is not None and work.capability != HOPPER:
        return "flashinfer's fa3 kernels are for Hopper GPUs"
    if work.kv_dtype != work.dtype:
        return f"flashinfer's fa3 kernels require a KV cache in {work.dtype}"
    return None


def _no_kernels(work: Work) -> str | None:
    if work.kernels is not None and not work.kernels.installed:
        return "the package flashinfer is not installed"
    return _not_built("fa2", work)


def _not_built(name: str, work: Work) -> str | None:
    if work.kernels is None:
        return None
    built = work.kernels.fa2 if name == "fa2" else work.kernels.fa3
    gpu = work.capability
    if built and (gpu is None or any(code.runs_on(gpu) for code in built)):
        return None
    where = f" ({work.kernels.where})" if work.kernels.where else ""
    if built and gpu is not None:
        return (
            f"flashinfer's {name} kernels are built for {', '.join(map(str, built))}, and this GPU has compute "
            f"capability {gpu[0]}.{gpu[1]}{where}"
        )
    return (
        f"flashinfer's {name} kernels for heads of {work.head_dim}, activations in {work.dtype} and a KV cache in "
        f"{work.kv_dtype} are not built{where}"
    )
