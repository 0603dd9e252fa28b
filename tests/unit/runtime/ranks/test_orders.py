"""What the first rank tells the others, and what it leaves when it cannot begin."""

import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as distributed
import zmq

from graphpod_policy import Device, ExitCode, FeatureConfig, Policy, SpeculativeMethod
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.pages import SCRATCH_PAGE, PageAllocator
from graphpod_runtime.engine.forward import unread_inputs
from graphpod_runtime.engine.forward.inputs import inputs_of
from graphpod_runtime.engine.ranks import leading
from graphpod_runtime.engine.ranks.following import Following
from graphpod_runtime.engine.ranks.leading import LaunchOrders
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.messages import Launch, Order, Rouse, decode_order, encode
from graphpod_runtime.engine.ranks.others import Others
from graphpod_runtime.engine.ranks.rank_sockets import FirstEnds
from graphpod_runtime.engine.ranks.start import runner_of
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule import drafting
from graphpod_runtime.engine.schedule.batch import Batch, Chunk, PrefillBatch
from graphpod_runtime.engine.schedule.drafting import DraftBatch, DraftsYielded
from graphpod_runtime.engine.schedule.pooled import Pooled
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.wire.messages import Fatal, Pooling
from tests.unit.runtime.conftest import engine_config


def launched(*chunks: Chunk, orders: LaunchOrders) -> Launch:
    order = decode_order(encode(orders.of(PrefillBatch(chunks), None, PageAllocator(2))))
    assert isinstance(order, Launch)
    return order


def test_all_ranks_pool_the_same_rows_after_a_preemption() -> None:
    """How many there are decides between a graph and none: ranks that choose differently wait for each other."""
    batches: list[Batch] = []
    runner = SimpleNamespace(
        pages=PageAllocator(2),
        host_tier=None,
        launch=lambda batch, given: batches.append(batch),
        land=lambda flight: None,
    )
    other, orders = Following(cast(Runner, runner)), LaunchOrders(8)
    sequence = Sequence("a", list(range(12)), 12, 1, pooled=Pooled(Pooling.Mean))
    sequence.pages = [1, 2, 3]
    for known in (0, 8):  # the second time, its first chunk is computed again
        assert sequence.pooled is not None
        sequence.pooled.known = known
        chunk = Chunk(sequence, 0, 8)
        other.obey(launched(chunk, orders=orders))
        (likeness,) = cast(PrefillBatch, batches[-1]).chunks
        assert likeness.pooled == chunk.pooled == range(known, 8)


def test_others_forget_sequences_beyond_so_many_but_none_in_flight_and_none_that_goes_on() -> None:
    """The first rank keeps the seat of one that decodes, and what a head has read of it: so do the others."""
    orders = LaunchOrders(3)
    one, two, three, decoding, more = (Sequence(name, [1, 2], 2, 1) for name in "abcde")
    two.launched, decoding.pages = 2, [1]
    for sequence in (one, two, three, decoding):
        assert launched(Chunk(sequence, 0, 2), orders=orders).forgotten == []
    order = launched(Chunk(more, 0, 2), orders=orders)
    assert order.forgotten == [1, 3]
    again = launched(Chunk(one, 0, 2), orders=orders)
    assert (again.rows[0].number, again.rows[0].known, again.rows[0].tokens) == (6, 0, [1, 2])
    assert launched(Chunk(decoding, 0, 2), orders=orders).rows[0].number == 4


class Sent:
    """In the place of the first rank's ends."""

    def __init__(self) -> None:
        self.orders: list[Order] = []

    def send(self, order: Order) -> None:
        self.orders.append(order)


@pytest.mark.parametrize(
    ("awake", "quiet", "orders"),
    [(60.0, 61.0, [Rouse()]), (60.0, 1.0, []), (0.0, 9.0, [])],
    ids=["asleep", "awake", "never kept awake"],
)
def test_ranks_are_roused_where_they_sleep_between_passes_that_follow_soon(
    awake: float, quiet: float, orders: list[Order]
) -> None:
    others, sent = object.__new__(Others), Sent()
    others._awake, others._ordered, others._ends = awake, time.monotonic() - quiet, cast(FirstEnds, sent)
    others.rouse()
    assert sent.orders == orders
    others.rouse()
    assert sent.orders == orders, "one is enough"


def test_a_rank_that_has_gone_is_missed_by_the_pass_which_can_name_it_not_by_the_rouse() -> None:
    class Gone(Sent):
        def send(self, order: Order) -> None:
            super().send(order)
            raise zmq.Again

    others, gone = object.__new__(Others), Gone()
    others._awake, others._ordered, others._ends = 0.02, 0.0, cast(FirstEnds, gone)
    others.rouse()
    assert gone.orders == [Rouse()]
    with pytest.raises(zmq.Again):
        others.send(Rouse())


def test_a_rank_that_is_roused_launches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes inputs as a pass would, and they name no page of a sequence."""
    made: list[Inputs] = []
    monkeypatch.setattr(unread_inputs, "inputs_of", lambda *given: made.append(inputs_of(*given)))
    runner = SimpleNamespace(
        config=SimpleNamespace(page_size=4), engine=SimpleNamespace(device=torch.device("cpu")), pages=PageAllocator(2)
    )
    following = Following(cast(Runner, runner))
    assert following.obey(Rouse()), "more comes"
    (inputs,) = made
    assert inputs.count == 4
    assert set(inputs.tables.flatten().tolist()) == {SCRATCH_PAGE}
    following._flights.append(cast(Any, "a pass"))
    assert following.obey(Rouse())
    assert made == [inputs], "a copy in between would keep the device from the pass behind it"


class Process:
    """Of a rank that never comes."""

    pid = 0
    killed = False

    def poll(self) -> int | None:
        return -9 if self.killed else None

    def kill(self) -> None:
        self.killed = True

    def wait(self, timeout: float | None = None) -> int:
        return -9


def nobody(meeting: Meeting, rank: int) -> Process:
    raise AssertionError(f"rank {rank} was started")


def unended(fatal: Fatal) -> None:
    raise AssertionError(f"the process of the caller would have ended: {fatal}")


def following_landed(batch: Batch, yielded: Yielded) -> None:
    """At a rank of an engine with drafts."""
    runner = SimpleNamespace(config=SimpleNamespace(features=FeatureConfig(speculative=SpeculativeMethod.Ngram)))
    Following(cast(Any, runner))._landed(batch, yielded)


@pytest.mark.parametrize(("tokens", "more", "known"), [([-2], (), [5, 6]), ([7], (8, -1), [5, 6, 7, 8])])
def test_a_sequence_to_which_no_token_is_left_has_no_pages_at_other_ranks_either(
    tokens: list[int], more: tuple[int, ...], known: list[int]
) -> None:
    """The first rank has ended it, and gives its pages to others."""
    sequence = Sequence("1", [5, 6], 2, 8)
    sequence.pages, sequence.launched, sequence.computed = [3], 1, 1
    batch = DraftBatch((sequence,), (2,), (3,), (4,))
    drafting.launched(batch)
    following_landed(batch, DraftsYielded(tokens, more=(more,)))
    assert (sequence.tokens, sequence.pages) == (known, [])


def test_a_chunk_that_does_not_end_its_prompt_leaves_its_pages() -> None:
    going_on, ended = (Sequence(name, [5, 6], 2, 8) for name in "12")
    going_on.pages, ended.pages = [3], [4]
    following_landed(PrefillBatch((Chunk(going_on, 0, 1), Chunk(ended, 0, 2))), Yielded([-1, 9]))
    assert (going_on.tokens, going_on.pages) == ([5, 6], [3])
    assert (ended.tokens, ended.pages) == ([5, 6, 9], [4])


def test_fewer_gpus_than_ranks_are_a_failure_before_any_rank_is_started(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, device=Device.Cuda, gpus=3, pipeline=3)
    with pytest.raises(StartFailure, match="sees 2 GPUs, the engine is to run on 3") as caught:
        runner_of(config, lambda report: None, nobody, unended)
    assert caught.value.code is ExitCode.GpuMissing


def test_a_first_rank_that_cannot_begin_leaves_neither_processes_nor_a_folder(
    llama_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise StartFailure(ExitCode.GpuMissing, "no GPU")

    monkeypatch.setattr(leading, "connect", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    processes = [Process(), Process()]
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, pipeline=3)
    with pytest.raises(StartFailure, match="no GPU"):
        runner_of(config, lambda report: None, lambda meeting, rank: processes[rank - 1], unended)
    assert [process.killed for process in processes] == [True, True]
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_without_room_for_sockets_of_ranks_is_named(
    llama_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / ("x" * (100 - len(str(tmp_path))))).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, pipeline=3)
    with pytest.raises(StartFailure, match="path is too long for sockets; set TMPDIR to a folder") as caught:
        runner_of(config, lambda report: None, nobody, unended)
    assert caught.value.code is ExitCode.SettingInvalid
    assert list(folder.iterdir()) == []


def test_a_second_engine_of_ranks_is_refused_and_leaves_the_first_its_group(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group may be of a program that torchrun has started, too."""
    ended: list[None] = []
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "destroy_process_group", lambda: ended.append(None))
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, pipeline=3)
    with pytest.raises(StartFailure, match=r"an engine of 3 ranks: .* close the other engine of several ranks"):
        runner_of(config, lambda report: None, nobody, unended)
    assert ended == []
