"""Sums of two GPUs without the backend, against the backend's, and what they send each other. Skipped on a machine with
one."""

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as distributed
import torch.multiprocessing as processes

from graphpod_runtime.distributed.agreement import Together
from graphpod_runtime.distributed.pair import Pair, pair_of
from graphpod_runtime.distributed.slots import BYTES, COUNT, slots_of
from graphpod_runtime.distributed.sum_ways import PUSHED, ROW_WORDS, ROWS, Way, way_of

pytestmark = pytest.mark.gpu
SIZES = (2, 6, 512, 514, 4096, 65536, PUSHED // 2, PUSHED // 2 + 8, 1 << 20, (8 << 20) + 8, 30)
"""Elements: words of one program and of many, and pieces of each program in one turn and in many."""


def joined(rank: int, folder: str) -> torch.device:
    """The GPU of this one of two processes, which have met by `folder` when it returns."""
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    os.environ["NCCL_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting = f"file://{folder}/meeting"
    distributed.init_process_group("nccl", init_method=meeting, rank=rank, world_size=2, device_id=device)
    return device


def _rank(rank: int, folder: str) -> None:
    device = joined(rank, folder)
    torch.cuda.set_device(0)  # as where an engine's ranks meet
    pair = pair_of(None, device, Together(rank, 2, distributed.new_group(backend="gloo")))
    torch.cuda.set_device(device)
    assert pair is not None
    generator = torch.Generator(device).manual_seed(rank)
    for turn in range(40):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for count in SIZES:
                x = torch.randn(count, generator=generator, device=device).to(dtype)
                x[::3] = -0.0
                wanted = x.clone()
                distributed.all_reduce(wanted)
                way = way_of(x.nbytes, dtype, pair.most_in_pieces)
                found = pair.sum(x)
                assert (found is None) is (way is Way.Backend)
                if turn % 3 == 2 and rank == turn % 2:
                    torch.cuda._sleep(1_000_000)  # so that one is behind
                for each in (pair.in_pieces(x), *([] if found is None else [found])):
                    assert torch.equal(each, wanted), (turn, dtype, count)
    for count in (4096, 5 << 20):
        _replayed(pair, device, rank, count)
    _added(pair, device, generator)
    _added_in_a_graph(pair, device, generator)
    distributed.destroy_process_group()


def _replayed(pair: Pair, device: torch.device, rank: int, count: int) -> None:
    """Sums of `count` elements in a graph, with others between its replays."""
    summed = pair.sum if count * 2 <= PUSHED else pair.in_pieces
    held = torch.zeros(count, device=device, dtype=torch.bfloat16)
    graph = torch.cuda.CUDAGraph()
    summed(held)
    torch.cuda.synchronize()
    distributed.barrier()
    with torch.cuda.graph(graph):
        first = summed(held)
        second = summed(first)
    for turn in range(500):
        # Something else between replays: turns go on from where they are.
        if turn % 3 == 0:
            summed(torch.ones(700, device=device))
        held.fill_(turn % 50 + rank)
        graph.replay()
        if turn % 50 == 0:
            assert float(first[-1]) == 2 * (turn % 50) + 1
            assert torch.equal(second, first * 2)
    torch.cuda.synchronize()


def _added(pair: Pair, device: torch.device, generator: torch.Generator) -> None:
    """Sums that are added to residuals and normalised, of any rows and widths in any order."""

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    for turn in range(30):
        for dtype, of_weight in ((torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32)):
            for rows, width in ((1, 4096), (ROWS, 2 * ROW_WORDS), (3, 64), (33, 5120), (64, 2050)):
                part, weight = drawn(rows, width).to(dtype), torch.ones(width, device=device, dtype=of_weight)
                part[:, ::3] = -0.0
                x = torch.full((rows, width), 0.5, device=device, dtype=dtype)
                assert pair.adds(x)
                total = part.clone()
                distributed.all_reduce(total)
                wanted = x + total
                if turn % 5 == 4 and distributed.get_rank() == turn % 2:
                    torch.cuda._sleep(1_000_000)
                norm = (weight * 2, 1e-6) if turn % 3 else None
                read = pair.add(part, x, norm)
                assert torch.equal(x, wanted), (turn, dtype, rows, width)
                if norm is None:
                    assert read is x
                    continue
                square = wanted.float().square().mean(-1, keepdim=True)
                near = {"rtol": 1e-2, "atol": 1e-6} if dtype is torch.bfloat16 else {"rtol": 1e-3, "atol": 1e-6}
                normalised = wanted.float() * torch.rsqrt(square + 1e-6) * 2
                torch.testing.assert_close(read.float(), normalised, **near)
    assert not pair.adds(torch.empty(ROWS + 1, 64, device=device, dtype=torch.bfloat16))
    assert not pair.adds(torch.empty(1, 2 * ROW_WORDS + 2, device=device, dtype=torch.bfloat16))
    assert not pair.adds(torch.empty(1, 64, device=device))


def _added_in_a_graph(pair: Pair, device: torch.device, generator: torch.Generator) -> None:
    """Layers of a graph, with others of another width and number of rows between its replays."""
    part = torch.zeros(7, 512, device=device, dtype=torch.bfloat16)
    x, weight = torch.zeros_like(part), torch.ones(512, device=device, dtype=torch.bfloat16)
    pair.add(part, x, (weight, 1e-6))
    torch.cuda.synchronize()
    distributed.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.zero_()
        for _ in range(9):
            read = pair.add(part, x, (weight, 1e-6))
    for turn in range(500):
        if turn % 3 == 0:
            other = torch.zeros(turn % ROWS + 1, 4096, device=device, dtype=torch.bfloat16)
            pair.add(torch.ones_like(other), other, None)
            if turn % 50 == 0:
                assert bool((other == 2).all())
        part.fill_(turn % 8 + distributed.get_rank())
        graph.replay()
        if turn % 50 == 0:
            assert bool((x == 9 * (2 * (turn % 8) + 1)).all())
            assert bool(((read - 1).abs() < 0.01).all())
    torch.cuda.synchronize()


def _line(rank: int, folder: str) -> None:
    device = joined(rank, folder)
    lines = {line: distributed.new_group([0, 1]) for line in ((0, 1), (1, 0))}
    slots = slots_of(lines, rank, device, Together(rank, 2, distributed.new_group(backend="gloo")))
    assert slots.keys() == lines.keys()
    there, back = slots[0, 1], slots[1, 0]
    for turn, count in enumerate((1, 3, 4096, COUNT * BYTES // 2 + 5, 70, BYTES // 2, 1) * 6):
        sent = torch.arange(count, device=device) + turn
        if rank == 0:
            there.put(sent)
            sent.fill_(-1)
            answer = torch.empty(2, device=device, dtype=torch.int64)
            back.take(answer)
            assert answer.tolist() == [turn, count]
        else:
            came = torch.empty_like(sent)
            there.take(came)
            assert torch.equal(came, sent)
            back.put(torch.tensor([turn, count], device=device))
    torch.cuda.synchronize()
    distributed.destroy_process_group()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_sums_are_those_of_the_backend_in_any_order_of_sizes(tmp_path: Path) -> None:
    processes.spawn(_rank, args=(str(tmp_path),), nprocs=2)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_what_one_gpu_sends_the_other_takes_in_pieces_and_in_order(tmp_path: Path) -> None:
    processes.spawn(_line, args=(str(tmp_path),), nprocs=2)
