"""Graphs cost twice: what torch's allocator holds for their pool, and what the driver takes beside it for instantiated
graphs and modules. Both are told, apart. The KV cache is sized from what is free, which is looked at again once the
cache is there.
"""

import sys
from collections.abc import Callable

import pytest
import torch

from graphpod_policy import Device, Phase
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.graphs.segments.addresses import Addresses
from graphpod_runtime.graphs.segments.cuda import KEPT_NUMBERS, CudaPool
from graphpod_runtime.graphs.segments.segment import capture
from tests.contracts.pools import capturing, cuda_parts
from tests.contracts.toy import Toy

CPU_ONLY = pytest.mark.parametrize("device", [Device.Cpu], indirect=True, ids=str)
GPU_ONLY = pytest.mark.parametrize("device", [Device.Cuda], indirect=True, ids=str)


def test_a_pool_is_told_by_its_bytes_and_sizes_no_larger_add_none(place: Place) -> None:
    toy = Toy(place)
    assert toy.pool.pool_bytes() == 0
    toy.capture(16)
    largest = toy.pool.pool_bytes()
    assert largest >= 16 * 16 * 4, "q, k and v of all rows at least"
    for size in (8, 4, 12):
        toy.capture(size)
    assert toy.pool.pool_bytes() == largest


def test_the_report_has_both_figures_of_the_graphs_alive(started: Callable[..., Runner]) -> None:
    runner = started()
    told = runner.report.as_dict()["graph"]
    for phase, graphs in runner._engine.graphs.items():
        assert told[phase]["poolBytes"] == graphs.pool.pool_bytes() > 0
        assert told[phase]["driverBytes"] >= graphs.pool.driver_bytes()


@CPU_ONLY
def test_each_figure_has_its_own_value_of_the_label_kind(started: Callable[..., Runner]) -> None:
    # What they import is not on a machine with a GPU.
    from graphpod_runtime.front.metrics.exporter import _reported
    from graphpod_runtime.front.status import Status

    runner = started()
    report = runner.report.as_dict()
    status = Status(runner.config, "", "", report)
    samples = [sample for sample in _reported(status) if sample.name == "graphpod_graph_memory_bytes"]
    found = {(sample.labels["phase"], sample.labels["kind"]): sample.value for sample in samples}
    assert found == {
        (phase.value, kind): report["graph"][phase.value][f"{kind}Bytes"]
        for phase in Phase
        for kind in ("pool", "driver")
    }


@CPU_ONLY
def test_the_recorder_has_no_driver_under_it(started: Callable[..., Runner]) -> None:
    assert [started().report.phases[phase].driver_bytes for phase in Phase] == [0, 0]


@pytest.mark.gpu
@GPU_ONLY
def test_pool_bytes_are_the_allocators_for_this_pool_alone(place: Place) -> None:
    toy, other = Toy(place), Toy(place)
    toy.capture(16)
    before = toy.pool.pool_bytes()
    other.capture(16)
    kept = torch.zeros(64 << 20, dtype=torch.uint8, device=place.device)
    assert toy.pool.pool_bytes() == before == sum(int(str(part["total_size"])) for part in cuda_parts(toy.pool))
    assert kept.numel() == 64 << 20


@pytest.mark.gpu
@GPU_ONLY
def test_to_ask_for_the_figure_costs_a_pool_of_a_high_number_nothing(place: Place) -> None:
    """The number of a pool is a Python int that must outlive the question. torch 2.11 ends it."""
    while max(torch.cuda.graph_pool_handle()) <= KEPT_NUMBERS:
        pass
    toy = Toy(place)
    toy.capture(16)
    assert isinstance(toy.pool, CudaPool)
    before = sys.getrefcount(max(toy.pool.handle))
    for _ in range(3):
        assert toy.pool.pool_bytes() == sum(int(str(part["total_size"])) for part in cuda_parts(toy.pool))
    after = sys.getrefcount(max(toy.pool.handle))  # an assert would hold it once more
    assert after == before


@pytest.mark.gpu
@GPU_ONLY
def test_driver_bytes_are_what_graphs_take_outside_the_allocator(place: Place) -> None:
    """Thousands of nodes: the driver allocates by the megabyte."""
    x = torch.zeros(64, device=place.device)
    addresses = Addresses()
    addresses.register("x", x)
    pool = place.pool(addresses)

    def outside() -> int:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(place.device)
        return total - free - torch.cuda.memory_reserved(place.device)

    def nodes() -> None:
        for _ in range(2000):
            x.add_(1)

    before = outside()
    segments = []
    with capturing(pool):
        pool.warm(nodes)
        for _ in range(8):
            segments.append(pool.segment())
            capture(segments[-1], nodes)
    taken = outside() - before
    assert taken > 4 << 20
    assert abs(pool.driver_bytes() - taken) <= 2 << 20
    assert pool.pool_bytes() < 4 << 20, "the nodes are the driver's, not the pool's"
