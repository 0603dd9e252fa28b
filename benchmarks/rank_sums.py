"""What a sum over ranks takes on GPUs: microseconds by bytes and way, next to the least that the link allows.

`python -m benchmarks.rank_sums --ranks 2 --json FILE` on one machine. Each time is of CALLS sums in one CUDA graph. The
floor of two ranks is a message's bytes by the speed of copies that both GPUs make to each other at a time: each has to
send its whole part. With two ranks every way is compared with the float32 sum in the order of ranks, bit by bit, as
called and as replayed. `--shapes` also times pieces of other sizes, in other numbers, and names the fastest.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
import torch.multiprocessing as processes
from torch import Tensor

from benchmarks.random_engine import provenance
from graphpod_policy import Device
from graphpod_runtime.distributed.agreement import Together
from graphpod_runtime.distributed.pair import Pair, pair_of
from graphpod_runtime.distributed.sum_ways import PUSHED, ROWS

SIZES = tuple(8 << 10 << power for power in range(14))
"""Bytes, 8 KiB to 64 MiB."""
CALLS, ROUNDS = 10, 15
CHANGES = 5
"""Times that the input of a graph changes when results are compared."""
SHAPED = (512 << 10, 4 << 20, 16 << 20, 64 << 20)
"""Bytes of the messages that `--shapes` times."""
PROGRAMS, PIECES, WARPS = (132, 264, 528, 1056), (4096, 8192, 16384, 32768), (4, 8)

WIDTH = 4096
"""Of the states to which a message is added."""
ADDED = "added and normalised"
"""The way that also adds the sum to states, which a launch more has made zeros, and normalises them."""

Sum = Callable[[Tensor], Tensor]


def ways(pair: Pair | None, device: torch.device) -> dict[str, tuple[int, Sum]]:
    """By name, with the bytes of the largest message."""
    found: dict[str, tuple[int, Sum]] = {"backend": (SIZES[-1], _by_backend)}
    if pair is None:
        return found
    import torch.distributed._symmetric_memory as symmetric

    group = distributed.group.WORLD.group_name
    seen = symmetric.empty(SIZES[-1], dtype=torch.uint8, device=device)
    symmetric.rendezvous(seen, group)

    def two_shots(x: Tensor) -> Tensor:
        part = seen[: x.nbytes].view(x.dtype)
        part.copy_(x)
        return torch.ops.symm_mem.two_shot_all_reduce_out(part, "sum", group, torch.empty_like(x))

    def words(x: Tensor) -> Tensor:
        total = pair.sum(x)
        assert total is not None
        return total

    weight = torch.ones(WIDTH, dtype=torch.bfloat16, device=device)

    def added(x: Tensor) -> Tensor:
        states = torch.zeros_like(x).view(-1, WIDTH)
        pair.add(x.view(-1, WIDTH), states, (weight, 1e-6))
        return states.view(-1)

    own = {"words": (PUSHED, words), "pieces": (SIZES[-1], pair.in_pieces), ADDED: (ROWS * WIDTH * 2, added)}
    return own | {"torch's two shots": (SIZES[-1], two_shots)} | found


def _by_backend(x: Tensor) -> Tensor:
    total = x.clone()
    distributed.all_reduce(total)
    return total


def graph_of(call: Callable[[], Tensor], calls: int = 1) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A graph of so many, and the result of the last."""
    call()
    together()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(calls - 1):
            call()
        result = call()
    together()
    return graph, result


def together() -> None:
    """Returns when all ranks have come and their devices have nothing to do."""
    torch.cuda.synchronize()
    distributed.barrier()
    torch.cuda.synchronize()


def microseconds(call: Callable[[], Tensor]) -> float:
    """Of one call in a graph, the median of ROUNDS."""
    graph, _ = graph_of(call, CALLS)
    found = []
    graph.replay()
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        found.append((begin, end))
    together()
    return statistics.median(begin.elapsed_time(end) for begin, end in found) * 1e3 / CALLS


def in_rank_order(x: Tensor) -> Tensor:
    """The sum in float32 of all ranks' x, rounded once."""
    parts = [torch.empty_like(x) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, x)
    total = parts[0].float()
    for part in parts[1:]:
        total += part.float()
    return total.to(x.dtype)


def is_exact(summed: Sum, nbytes: int, device: torch.device) -> bool:
    """As called and as replayed, at this rank."""
    x = torch.randn(nbytes // 2, device=device).bfloat16()
    exact = torch.equal(summed(x), in_rank_order(x))
    graph, result = graph_of(lambda: summed(x))
    for turn in range(CHANGES):
        x.copy_(torch.randn(nbytes // 2, device=device) * (turn + 1))
        wanted = in_rank_order(x)
        if turn % 2:
            summed(x)  # between replays
        graph.replay()
        exact = exact and torch.equal(result, wanted)
    together()
    return exact


def link_speed(rank: int, device: torch.device) -> float:
    """Bytes a second that each of two GPUs copies to the other while the other does, too."""
    import torch.distributed._symmetric_memory as symmetric

    own = symmetric.empty(SIZES[-1], dtype=torch.uint8, device=device)
    theirs = symmetric.rendezvous(own, distributed.group.WORLD.group_name).get_buffer(
        1 - rank, (SIZES[-1],), torch.uint8
    )
    sent = torch.zeros_like(own)
    together()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    theirs.copy_(sent)
    begin.record()
    for _ in range(CALLS):
        theirs.copy_(sent)
    end.record()
    together()
    return SIZES[-1] * CALLS / begin.elapsed_time(end) * 1e3


def shapes(rank: int, device: torch.device) -> list[dict[str, Any]]:
    """Microseconds of pieces of each shape."""
    import torch.distributed._symmetric_memory as symmetric

    from graphpod_runtime.distributed.exchanged_sum_triton import Memory, Shape, exchange_into

    tried = [Shape(*each) for each in product(PROGRAMS, PIECES, WARPS)]
    most = max(shape.bytes for shape in tried)
    own = symmetric.empty(most, dtype=torch.uint8, device=device)
    other = symmetric.rendezvous(own, distributed.group.WORLD.group_name).get_buffer(1 - rank, (most,), torch.uint8)

    def in_shape(x: Tensor, memory: Memory, shape: Shape) -> Tensor:
        return exchange_into(x, torch.empty_like(x), memory, shape)

    inputs = {nbytes: torch.randn(nbytes // 2, device=device).bfloat16() for nbytes in SHAPED}
    rows = []
    for shape in tried:
        together()
        own.zero_()
        together()
        counts = torch.zeros(shape.programs, dtype=torch.int32, device=device)
        memory = Memory(own[: shape.bytes], other[: shape.bytes], counts)
        found = {}
        for nbytes, x in inputs.items():
            time = microseconds(partial(in_shape, x, memory, shape))
            found[str(nbytes)] = round(time, 2)
        rows.append(shape._asdict() | {"microseconds": found})
        if rank == 0:
            print(*shape, found, file=sys.stderr, flush=True)
    return rows


def _rank(rank: int, count: int, folder: str, shaped: bool) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    meeting = f"file://{folder}/meeting"
    distributed.init_process_group("nccl", init_method=meeting, rank=rank, world_size=count, device_id=device)
    ranks = Together(rank, count, distributed.new_group(backend="gloo"))
    torch.manual_seed(rank)
    pair = pair_of(None, device, ranks)
    found: dict[str, Any] = {"ranks": count, "bytesPerSecond": None, "rows": [], "inexact": []}
    if pair is not None:
        found["mostInPieces"] = pair.most_in_pieces
        found["bytesPerSecond"] = -ranks.most(-int(link_speed(rank, device)))
    known = ways(pair, device)
    for nbytes in SIZES:
        x = torch.randn(nbytes // 2, device=device).bfloat16()
        row: dict[str, Any] = {"bytes": nbytes, "microseconds": {}}
        if found["bytesPerSecond"]:
            row["floor"] = nbytes / found["bytesPerSecond"] * 1e6
        for name, (most, summed) in known.items():
            if nbytes > most:
                continue
            if pair is not None and not ranks.least(is_exact(summed, nbytes, device)):
                found["inexact"].append([name, nbytes])
            row["microseconds"][name] = round(microseconds(partial(summed, x)), 2)
        found["rows"].append(row)
        if rank == 0:
            print(line(row), flush=True)
    if shaped and pair is not None:
        found["shapes"] = shapes(rank, device)
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found | provenance(Device.Cuda)))
    together()
    distributed.destroy_process_group()


def line(row: dict[str, Any]) -> str:
    """Of the table."""
    floor = f"  floor {row['floor']:.1f}" if "floor" in row else ""
    each = "  ".join(f"{name} {time:.1f}" for name, time in row["microseconds"].items())
    return f"{row['bytes'] >> 10:>6} KiB{floor}  {each} µs"


def summary(found: dict[str, Any]) -> list[str]:
    """The lines below the table."""
    lines = []
    if found["bytesPerSecond"]:
        lines.append(f"link: {found['bytesPerSecond'] / 1e9:.0f} GB/s each way, both ways at a time")
        lines.append(f"an engine here sums in pieces up to {found['mostInPieces']} bytes")
    for nbytes in map(str, SHAPED if found.get("shapes") else ()):
        best = sorted(found["shapes"], key=lambda row: row["microseconds"][nbytes])[:3]
        named = [f"{row['programs']}×{row['piece']} {row['warps']}w {row['microseconds'][nbytes]} µs" for row in best]
        lines.append(f"fastest of {int(nbytes) >> 10} KiB: {', '.join(named)}")
    wrong = "; ".join(f"{name} at {nbytes} bytes" for name, nbytes in found["inexact"])
    return [*lines, f"NOT EXACT: {wrong}" if wrong else "all ways exact, as called and as replayed"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, metavar="N")
    parser.add_argument("--shapes", action="store_true", help="time pieces of other sizes, too")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if torch.cuda.device_count() < arguments.ranks:
        parser.error(f"{arguments.ranks} ranks need as many GPUs, and this machine has {torch.cuda.device_count()}")
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(_rank, args=(arguments.ranks, folder, arguments.shapes), nprocs=arguments.ranks)
        found = json.loads(Path(folder, "found.json").read_text())
    print(*summary(found), sep="\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if found["inexact"] else 0


if __name__ == "__main__":
    sys.exit(main())
