"""How ranks of one host find each other."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as distributed

from graphpod_runtime.ranks.agreement import Together
from graphpod_runtime.ranks.collectives import share_layers_with
from graphpod_runtime.ranks.pipeline import Pipeline, Position

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Ranks of one host need no other network to meet. What the environment says counts more."""
PATIENCE = timedelta(minutes=30)
"""A rank waits so long for another: one may compile while the other has done so. Who watches ranks ends them before."""


class Connected(NamedTuple):
    """What a rank has of the others."""

    ranks: Together
    pipeline: Pipeline | None
    """None: all ranks have all layers."""


def connect(place: Position, folder: Path, device: torch.device) -> Connected:
    """This process at its `place` among all ranks, which name the same `folder`; returns when all have come. Tensors of
    `device` go by NCCL between GPUs, else by gloo; votes always by gloo."""
    for name, interface in LOOPBACK.items():
        os.environ.setdefault(name, interface)
    cuda, count = device.type == "cuda", place.tensor * place.stages
    distributed.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=f"file://{folder / 'meeting'}",
        rank=place.rank,
        world_size=count,
        timeout=PATIENCE,
        device_id=device if cuda else None,
    )
    votes = distributed.new_group(backend="gloo", timeout=PATIENCE)
    if place.stages == 1:
        return Connected(Together(place.rank, count, votes), None)
    ranks = Together(place.rank, count, votes, keeps_first_tokens=place.begins and place.tensor > 1)
    pipeline = Pipeline(place, _groups(place))
    pipeline.meet(device)
    return Connected(ranks, pipeline)


def _groups(place: Position) -> dict[tuple[int, int], Any]:
    """Lines by sender and receiver, of all stages: every rank makes every group, in the same order."""
    tensor, stages = place.tensor, place.stages
    for stage in range(stages):
        group = distributed.new_group([stage * tensor + part for part in range(tensor)], timeout=PATIENCE)
        if stage == place.stage:
            share_layers_with(group)
    lines = [(rank, rank + tensor) for rank in range((stages - 1) * tensor)]
    lines.append(((stages - 1) * tensor, 0))
    return {line: distributed.new_group(sorted(line), timeout=PATIENCE) for line in lines}


def disconnect() -> None:
    """Leaves the others."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
