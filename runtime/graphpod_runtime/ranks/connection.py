"""How ranks of one host find each other."""

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as distributed

from graphpod_runtime.ranks.agreement import Together

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Ranks of one host need no other network to meet. What the environment says counts more."""
PATIENCE = timedelta(minutes=30)
"""A rank waits so long for another: one may compile while the other has done so. Who watches ranks ends them before."""


def connect(rank: int, count: int, folder: Path, device: torch.device) -> Together:
    """This process as `rank` of `count`, which all name the same `folder`; returns when all have come. Tensors of
    `device` go by NCCL between GPUs, else by gloo; votes always by gloo."""
    for name, interface in LOOPBACK.items():
        os.environ.setdefault(name, interface)
    cuda = device.type == "cuda"
    distributed.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=f"file://{folder / 'meeting'}",
        rank=rank,
        world_size=count,
        timeout=PATIENCE,
        device_id=device if cuda else None,
    )
    return Together(rank, count, distributed.new_group(backend="gloo", timeout=PATIENCE))


def disconnect() -> None:
    """Leaves the others."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
