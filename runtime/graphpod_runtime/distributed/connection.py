"""How ranks find each other: those of one host by a file, those of several by the first one's address."""

import os
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import torch
import torch.distributed as distributed

from graphpod_policy import ExitCode
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.distributed import parting
from graphpod_runtime.distributed.agreement import Together
from graphpod_runtime.distributed.collectives import share_layers_with
from graphpod_runtime.distributed.interface import interface_to
from graphpod_runtime.distributed.pair import pair_of
from graphpod_runtime.distributed.pipeline import Pipeline, Position
from graphpod_runtime.distributed.slots import slots_of

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""What the environment says counts more. Ranks of one host need no network to meet, those of several take the one
that leads to the first rank's."""
PATIENCE = timedelta(minutes=30)
"""A rank waits so long for another: one may compile while the other has done so. Who watches ranks ends them before."""

_met = False
"""Whether ranks of GPUs have met in this process."""


class Connected(NamedTuple):
    """What a rank has of the others."""

    ranks: Together
    pipeline: Pipeline | None
    """None: all ranks have all layers."""


def connect(place: Position, meeting: str, device: torch.device) -> Connected:
    """This process at its `place` among all ranks, which name the same URL as their `meeting`, file:// or tcp://;
    returns when all have come. Tensors of `device` go by NCCL between GPUs, else by gloo; votes always by gloo."""
    url = urlsplit(meeting)
    interface = "lo" if url.scheme == "file" else _interface(url.hostname or "", url.port or 0)
    for name in INTERFACES if interface else ():
        os.environ.setdefault(name, interface)
    cuda, count = device.type == "cuda", place.tensor * place.stages
    distributed.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=meeting,
        rank=place.rank,
        world_size=count,
        timeout=PATIENCE,
        device_id=device if cuda else None,
    )
    votes = distributed.new_group(backend="gloo", timeout=PATIENCE)
    if place.stages == 1:
        ranks = Together(place.rank, count, votes)
        pair = pair_of(None, device, ranks) if _shares_memory(device, ranks) else None
        share_layers_with(None, pair)
        parting.may_wait(device, [pair] if pair else [])
        return Connected(ranks, None)
    ranks = Together(place.rank, count, votes, keeps_first_tokens=place.begins and place.tensor > 1)
    stage, lines = _groups(place)
    shared = _shares_memory(device, ranks)
    pair = pair_of(stage, device, ranks) if shared else None
    share_layers_with(stage, pair)
    pipeline = Pipeline(place, lines, slots_of(lines, place.rank, device, ranks) if shared else {})
    parting.may_wait(device, [*([pair] if pair else []), *pipeline.slots.values()])
    pipeline.meet(device)
    return Connected(ranks, pipeline)


def _shares_memory(device: torch.device, ranks: Together) -> bool:
    """Whether GPUs may write to each other's memory: in the first engine of a process. Symmetric memory counts the
    meetings of a process, and ranks must have had as many: the others of a later engine are new processes, which would
    be waited for without end. All of `ranks` call it, and have the same answer."""
    global _met
    if device.type != "cuda":
        return False
    first, _met = not _met, True
    return bool(ranks.least(first))


def _interface(host: str, port: int) -> str:
    """As `interface_to` has it. StartFailure for a host that nothing leads to."""
    try:
        return interface_to(host, port)
    except OSError as error:
        what = f"nothing leads from this machine to the leader's, {host}: {error.strerror}"
        step = "correct --leader, or this machine's name servers and routes"
        raise StartFailure(ExitCode.SettingInvalid, f"{what}; {step}") from error


def _groups(place: Position) -> tuple[Any, dict[tuple[int, int], Any]]:
    """The ranks of its stage, and lines by sender and receiver, of all stages: every rank makes every group, in the
    same order."""
    tensor, stages = place.tensor, place.stages
    by_stage = [
        distributed.new_group([stage * tensor + part for part in range(tensor)], timeout=PATIENCE)
        for stage in range(stages)
    ]
    lines = [(rank, rank + tensor) for rank in range((stages - 1) * tensor)]
    lines.append(((stages - 1) * tensor, 0))
    return by_stage[place.stage], {line: distributed.new_group(sorted(line), timeout=PATIENCE) for line in lines}


def disconnect() -> None:
    """Leaves the others. Graphs that hold collectives are gone."""
    share_layers_with(None)
    parting.end_groups()
