"""Graphs of a start over ranks: what is dropped goes at once, what is left is kept for the end."""

import weakref

import pytest
import torch

from graphpod_runtime.graphs.segments.cuda import CudaSegment, keeping_graphs


@pytest.mark.parametrize("fails", [False, True])
def test_graphs_that_a_start_leaves_are_kept_and_those_that_it_drops_go(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    class Graph:
        """In the place of CUDA's, which needs a device."""

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    kept: list[torch.cuda.CUDAGraph] = []
    try:
        with keeping_graphs(kept):
            left, dropped = CudaSegment((0, 0)), CudaSegment((0, 0))
            gone = weakref.ref(dropped._graph)
            del dropped
            assert gone() is None
            if fails:
                raise ArithmeticError
    except ArithmeticError:
        assert fails
    later = CudaSegment((0, 0))
    assert kept == [left._graph]
    assert later._graph not in kept
