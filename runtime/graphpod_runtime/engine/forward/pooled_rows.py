"""Rows of a prefill pass that embeddings are made of, gathered from the hidden states of all its rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.engine.schedule.batch import PrefillBatch
from graphpod_runtime.engine.schedule.yielded import PooledSum
from graphpod_runtime.models.model import Model


@dataclass(frozen=True, slots=True)
class PooledRows:
    """Sums of rows of final hidden states: `sums` float32 [entries, hidden]."""

    sums: Tensor
    entries: tuple[int, ...]
    """The chunk of the batch that each is of,"""
    rows: tuple[int, ...]
    """and the rows in it."""

    def copied(self) -> "PooledRows":
        """On its way to the host."""
        return PooledRows(self.sums.to(HOST, non_blocking=True, copy=True), self.entries, self.rows)

    def landed(self) -> Iterator[PooledSum]:
        """From the host."""
        for entry, rows, total in zip(self.entries, self.rows, self.sums.numpy(), strict=True):
            yield PooledSum(entry, rows, total)


def of_chunks(model: Model, batch: PrefillBatch, starts: list[int], hidden: Tensor) -> PooledRows | None:
    """Of the chunks that give rows to a pool; the rows of hidden [tokens, hidden] of each begin at `starts`. None: no
    chunk does.
    """
    entries, counts, rows = list[int](), list[int](), list[int]()
    for index, chunk in enumerate(batch.chunks):
        if pooled := chunk.pooled:
            entries.append(index)
            counts.append(len(pooled))
            rows += (starts[index] + position - chunk.start for position in pooled)
    if not entries:
        return None
    states = model.final(hidden[torch.tensor(rows).to(hidden.device, non_blocking=True)]).float()
    if len(rows) > len(entries):
        states = torch.stack([part.sum(dim=0) for part in states.split(counts)])
    return PooledRows(states, tuple(entries), tuple(counts))
