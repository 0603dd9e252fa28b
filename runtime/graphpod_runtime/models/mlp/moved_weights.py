"""Weights that are moved on purpose, where a rounding may tip something: FP8's next number, or a router's choice."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from graphpod_runtime.compiled.source_comparison import nudged
from graphpod_runtime.distributed.agreement import ALONE, Ranks
from graphpod_runtime.models.mlp.experts import Experts
from graphpod_runtime.models.weights.fp8 import Fp8BlockWeight, Fp8Weight, fp8_weights, tipped


def tipping_of(module: nn.Module, ranks: Ranks = ALONE) -> Callable[[], AbstractContextManager[None]] | None:
    """What moves those of `module` while it lasts; None: a rounding tips nothing there, nor at any other of `ranks`.
    What tips states of one stage of a pipeline reaches the others, and all run the same passes."""
    weights = fp8_weights(module)
    routers = tuple(one.router.data for one in module.modules() if isinstance(one, Experts))
    return partial(_all_tipped, weights, routers) if ranks.most(bool(weights or routers)) else None


@contextmanager
def _all_tipped(weights: tuple[Fp8Weight | Fp8BlockWeight, ...], routers: tuple[Tensor, ...]) -> Iterator[None]:
    with tipped(weights), _routers_tipped(routers):
        yield


@contextmanager
def _routers_tipped(routers: tuple[Tensor, ...]) -> Iterator[None]:
    """Within, weights of routers are a unit or two in the last place off, in their places: some of the choices that are
    close turn. Scores and their input are rounded by less, half a unit each."""
    before = [router.clone() for router in routers]
    for router in routers:
        generator = torch.Generator(router.device).manual_seed(0)
        router.copy_(nudged(router, generator))
    try:
        yield
    finally:
        for router, content in zip(routers, before, strict=True):
            router.copy_(content)
