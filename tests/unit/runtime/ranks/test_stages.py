"""What a stage of a pipeline has, and which sequences decode together."""

import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
import torch.distributed as distributed

from graphpod_policy.model.mixture import Mixture
from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.distributed.pipeline import Pipeline, Position
from graphpod_runtime.engine.ranks.messages import Beat, LastWords
from graphpod_runtime.engine.ranks.pass_answers import PassAnswer, answer_of
from graphpod_runtime.engine.schedule.batch import Batch, Chunk, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.micro_batches import micro_batch
from graphpod_runtime.engine.schedule.pooled import Pooled
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.grammar.matcher import AnswerGrammar
from graphpod_runtime.models import loader
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.wire.messages import Pooling
from tests.unit.runtime.conftest import write_family, write_llama

TWO = 2


def stages(folder: Path, count: int) -> list[Decoder]:
    found = [load_model(folder, torch.float32, 64, HOST, stage=stage, stages=count) for stage in range(count)]
    assert all(isinstance(one, Decoder) for one in found)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("tied", [True, False])
def test_stages_have_every_weight_once_but_for_a_tied_embedding(tmp_path: Path, tied: bool) -> None:
    folder = write_llama(tmp_path, tied=tied, num_hidden_layers=3)
    whole = load_model(folder, torch.float32, 64)
    assert isinstance(whole, Decoder)
    first, last = stages(folder, TWO)
    assert (first.shape.layers, last.shape.layers) == (2, 1)
    assert torch.equal(first.embedding, whole.embedding)
    assert torch.equal(last.output, whole.output)
    assert torch.equal(last.norm.weight, whole.norm.weight)
    assert len(first.output) == (len(whole.output) if tied else 0)
    assert len(last.embedding) == (len(whole.embedding) if tied else 0)
    own = [*first.body.layers, *last.body.layers]
    for found, wanted in zip(own, whole.body.layers, strict=True):
        assert all(torch.equal(*each) for each in zip(found.parameters(), wanted.parameters(), strict=True))


def test_what_sets_layers_apart_goes_with_them(tmp_path: Path) -> None:
    folder = write_family(tmp_path, "gemma3", num_hidden_layers=4)
    whole = load_model(folder, torch.float32, 64).shape
    found = stages(folder, 3)
    assert [window for one in found for window in one.shape.windows] == list(whole.windows)
    assert all(one.shape.model == whole for one in found)


def test_a_stage_reads_no_tensor_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_llama(tmp_path, num_hidden_layers=3)
    filled: list[str] = []

    def fill(*arguments: object) -> None:
        filled.extend(stored.name for stored in arguments[3])  # type: ignore[attr-defined]

    monkeypatch.setattr(loader, "fill", fill)
    load_model(folder, torch.float32, 64, stage=1, stages=3)
    assert {re.sub(r"(layers\.\d+)\..*", r"\1", name) for name in filled} == {"model.layers.1"}


def test_layers_that_the_model_does_not_have_are_no_other_stage(tmp_path: Path) -> None:
    folder = write_llama(tmp_path, num_hidden_layers=3)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"num_hidden_layers": 3', '"num_hidden_layers": 2'))
    with pytest.raises(ModelInvalid, match=r"model\.layers\.2\..* has no place"):
        load_model(folder, torch.float32, 64, stage=0, stages=2)


def test_ranks_of_a_stage_are_neighbours() -> None:
    places = [Position(rank, 2, 2) for rank in range(4)]
    assert [(one.stage, one.part) for one in places] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [(one.begins, one.ends) for one in places] == [(True, False)] * 2 + [(False, True)] * 2


def test_layers_with_experts_are_counted_from_the_first_of_their_stage(tmp_path: Path) -> None:
    whole = Mixture(experts=4, chosen=2, width=8, normalised=True, shared=0, layers=(1, 3, 4))
    folder = write_llama(tmp_path, num_hidden_layers=5)
    shape = replace(load_model(folder, torch.float32, 64).shape, mixture=whole)
    stages = [shape.staged(index, TWO) for index in range(TWO)]
    assert [[stage.experts(layer) is not None for layer in range(stage.layers)] for stage in stages] == [
        [False, True, False], [True, True]
    ]  # fmt: skip


@pytest.mark.parametrize(("tensor", "count"), [(1, 2), (2, 3)])
def test_every_line_is_used_at_the_start(monkeypatch: pytest.MonkeyPatch, tensor: int, count: int) -> None:
    sent, received = list[tuple[int, int]](), list[tuple[int, int]]()
    monkeypatch.setattr(distributed, "isend", lambda tensor, to, line: sent.append(line))
    monkeypatch.setattr(distributed, "recv", lambda into, sender, line: received.append(line))
    lines = [(rank, rank + tensor) for rank in range((count - 1) * tensor)] + [((count - 1) * tensor, 0)]
    for rank in range(tensor * count):
        Pipeline(Position(rank, tensor, count), {line: line for line in lines}).meet(HOST)
    assert sorted(sent) == sorted(received) == sorted(lines)


def sequence(name: str, at: int = 0, *, flying: bool = False) -> Sequence:
    one = Sequence(name, [1, 2], 2, 8, decoded_at=at)
    one.launched, one.computed = 2, 1 if flying else 2
    return one


def test_an_answer_is_decided_by_how_requests_choose() -> None:
    greedy, drawn, scored, pooled = (Sequence(name, [1, 2], 2, 8) for name in "abcd")
    drawn.sampling = Sampling(0.8)
    scored.wants = LogprobRequest(prompt=0)
    pooled.pooled = Pooled(Pooling.Mean)
    for batch, wanted in (
        (PrefillBatch((Chunk(greedy, 0, 1),)), PassAnswer.Nothing),
        (PrefillBatch((Chunk(greedy, 0, 2),)), PassAnswer.Tokens),
        (PrefillBatch((Chunk(greedy, 0, 2), Chunk(drawn, 0, 2))), PassAnswer.Logits),
        (PrefillBatch((Chunk(greedy, 0, 2), Chunk(scored, 0, 1))), PassAnswer.Within),
        (PrefillBatch((Chunk(pooled, 0, 1),)), PassAnswer.Within),
        (DecodeBatch((greedy,)), PassAnswer.Tokens),
        (DecodeBatch((greedy, drawn)), PassAnswer.Logits),
    ):
        assert answer_of(batch) is wanted


def test_sequences_decode_in_as_many_batches_as_there_are_stages() -> None:
    one, two, three, four = (sequence(name) for name in "abcd")
    assert micro_batch((one, two, three, four), 2, flights=0) == (one, two)
    one.computed = two.computed = 1
    assert micro_batch((one, two, three, four), 2, flights=1) == (three, four)


def test_what_runs_ahead_is_a_share_so_sequences_of_one_prefill_pass_divide() -> None:
    limits = Limits(max_model_len=40, max_batch=4, prefill_chunk=16, page_size=4, max_queue=4, stages=TWO)
    scheduler, batches = Scheduler(PageAllocator(41), limits, (0,)), list[str]()
    for name in "abcd":
        scheduler.submit(Sequence(name, [7, 7], 2, 9))

    def launched() -> Batch:
        batch = scheduler.next()
        assert batch is not None
        if isinstance(batch, DecodeBatch):
            batches.append("".join(one.id for one in batch.sequences))
        return batch

    in_flight = launched()
    for _ in range(5):
        next_one = launched()
        scheduler.advance(in_flight, Yielded([9] * (4 if isinstance(in_flight, PrefillBatch) else TWO)))
        in_flight = next_one
    assert batches == ["ab", "cd", "ab", "cd", "ab"]


def test_who_has_waited_longest_decodes_first() -> None:
    """A prefill pass between two decodes lets the first batch land before the second is planned."""
    one, two, three = sequence("a", at=5), sequence("b", at=3), sequence("c", at=4)
    assert micro_batch((one, two, three), 3, flights=1) == (two,)


def test_a_lone_batch_runs_ahead_of_itself_once() -> None:
    lone = sequence("a", flying=True)
    assert micro_batch((lone,), 2, flights=1) == (lone,)
    assert micro_batch((lone,), 3, flights=2) == ()
    lone.grammar = cast(AnswerGrammar, object())
    assert micro_batch((lone,), 2, flights=1) == ()


def test_beats_say_what_a_rank_waits_for() -> None:
    from graphpod_runtime.engine.ranks.messages import decode_notices, encode
    from graphpod_runtime.wire.messages import Fatal, Heartbeat

    beat = Beat(2, Heartbeat(1.0, "Ready"), "hidden states of stage 1")
    words = LastWords(1, Fatal("EngineDied", "why", 1))
    assert decode_notices([encode(beat), encode(words)]) == [beat, words]
