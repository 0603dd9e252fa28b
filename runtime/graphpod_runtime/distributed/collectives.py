"""What ranks compute together, as operators: captures, traces and compilers hold each as one call.

Without ranks no code calls them. While the recorder captures, ranks exchange nothing, as a captured stream would not:
what they compute then is overwritten, and a rank whose capture fails leaves no other one waiting.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor

from graphpod_runtime.distributed.agreement import Ranks
from graphpod_runtime.distributed.pair import Pair

torch.library.define("graphpod::sum_of_ranks", "(Tensor x) -> Tensor")
torch.library.define("graphpod::columns_of_ranks", "(Tensor x, int ranks) -> Tensor")

_gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
"""Of two names, torch 2.11 has only the second, and later ones warn of it."""

_silent: frozenset[str] = frozenset()
"""Types of devices whose ranks exchange nothing now."""

_group: Any = None
"""The ranks that share layers with this one; None: all do."""

_pair: Pair | None = None
"""What sums most messages of two GPUs; None: the backend sums all."""


def share_layers_with(group: Any, pair: Pair | None = None) -> None:
    """From now on the ranks of `group` compute together: those of one stage of a pipeline, or all if None. They are
    `pair` if that is given."""
    global _group, _pair
    _group, _pair = group, pair


def is_silent() -> bool:
    """Whether a capture is under way, in which ranks exchange nothing by the host."""
    return bool(_silent)


def sum_of_ranks(x: Tensor) -> Tensor:
    """The sum of what each rank has in the place of `x`: the same bits at every rank."""
    result: Tensor = torch.ops.graphpod.sum_of_ranks(x)
    return result


def adds_at_once(x: Tensor) -> bool:
    """Whether `add_sum_of_ranks` takes states like `x` [rows, width]."""
    return _pair is not None and x.device.type not in _silent and _pair.adds(x)


def add_sum_of_ranks(part: Tensor, x: Tensor, norm: tuple[Tensor, float] | None) -> Tensor:
    """Adds to `x` in place the sum of what each rank has in the place of `part`, like it. Returns what `norm`, the
    weight of an RMS norm and its epsilon, makes of `x` then, or `x` without one. One launch, neither traced nor
    compiled."""
    assert _pair is not None
    return _pair.add(part, x, norm)


def columns_of_ranks(x: Tensor, ranks: int) -> Tensor:
    """x [rows, width] of every rank, next to each other in the order of ranks: [rows, ranks · width]."""
    result: Tensor = torch.ops.graphpod.columns_of_ranks(x, ranks)
    return result


def from_first_rank(x: Tensor) -> Tensor:
    """What the first rank has in the place of `x`; for ranks that share layers with it."""
    shared = x.clone()
    distributed.broadcast(shared, src=0, group=_group)
    return shared


@contextmanager
def silent(*devices: str) -> Iterator[None]:
    """Within, ranks of these devices, else those of a CPU, exchange nothing; results have the right shape and any
    content."""
    global _silent
    before, _silent = _silent, frozenset(devices or ("cpu",))
    try:
        yield
    finally:
        _silent = before


@contextmanager
def working_alike(ranks: Ranks) -> Iterator[None]:
    """Around work that each rank does for itself, such as compiling: it exchanges nothing within, so one that fails
    leaves no other one waiting, and its GraphError is raised at every rank."""
    with ranks.agreed(), silent("cpu", "cuda"):
        yield


@torch.library.impl("graphpod::sum_of_ranks", ("cpu", "cuda"))
def _sum(x: Tensor) -> Tensor:
    exchanged = x.device.type not in _silent
    if exchanged and _pair is not None and (added := _pair.sum(x.contiguous())) is not None:
        return added
    total = x.clone(memory_format=torch.contiguous_format)
    if exchanged:
        distributed.all_reduce(total, group=_group)
    return total


@torch.library.register_fake("graphpod::sum_of_ranks")
def _like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.impl("graphpod::columns_of_ranks", ("cpu", "cuda"))
def _columns(x: Tensor, ranks: int) -> Tensor:
    rows, width = x.shape
    parts = x.new_empty(ranks * rows, width)
    if parts.device.type not in _silent:
        _gather(parts, x.contiguous(), group=_group)
    return parts.view(ranks, rows, width).transpose(0, 1).reshape(rows, ranks * width)


@torch.library.register_fake("graphpod::columns_of_ranks")
def _wide(x: Tensor, ranks: int) -> Tensor:
    return x.new_empty(x.shape[0], ranks * x.shape[1])
