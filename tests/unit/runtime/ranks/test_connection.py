"""Engines that follow each other in one process: groups of ranks have names of their own each time."""

from pathlib import Path

import pytest
import torch
import torch.distributed as distributed

from graphpod_runtime.distributed.connection import connect, disconnect
from graphpod_runtime.distributed.pipeline import Position

ALONE = Position(rank=0, tensor=1, stages=1)


def group_name(meeting: str) -> str:
    connect(ALONE, meeting, torch.device("cpu"))
    try:
        return str(distributed.group.WORLD.group_name)
    finally:
        disconnect()


def test_a_later_meeting_has_other_names_of_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "lo")
    first, second = (group_name(f"file://{tmp_path}/{one}") for one in ("first", "second"))
    assert first != second
