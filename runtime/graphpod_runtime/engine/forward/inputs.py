"""From a batch to the tensors one forward pass reads."""

from dataclasses import replace
from typing import NoReturn

import numpy
import torch
import torch.nn.functional as functional

from graphpod_policy import Phase
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.engine.schedule.batch import Batch, Chunk, DecodeBatch
from graphpod_runtime.engine.schedule.sequence import Sequence


def inputs_of(batch: Batch, page_size: int, device: torch.device = HOST) -> Inputs:
    """The unpadded inputs of `batch`; its tokens, positions and slots on `device`. IndexError for a sequence that owns
    too few pages: it would write the scratch page, and read there what others wrote.
    """
    if isinstance(batch, DecodeBatch):
        chunks = tuple(Chunk(one, end - 1, end) for one, end in zip(batch.sequences, batch.ends, strict=True))
        return inputs_of_chunks(Phase.Decode, chunks, page_size, device)
    inputs = inputs_of_chunks(Phase.Prefill, batch.chunks, page_size, device)
    return replace(inputs, input_logprobs=True) if batch.reads_all_rows else inputs


def inputs_of_chunks(phase: Phase, chunks: tuple[Chunk, ...], page_size: int, device: torch.device) -> Inputs:
    """As `inputs_of`, of a pass over `chunks`."""
    # By numpy, and as few steps as can be: the device waits for this.
    owned = [len(chunk.sequence.pages) for chunk in chunks]
    tables = numpy.full((len(chunks), max(owned)), SCRATCH_PAGE)
    starts, ends = [0], [chunk.end for chunk in chunks]
    for chunk in chunks:
        starts.append(starts[-1] + chunk.end - chunk.start)
    tokens, positions, slots = rows = numpy.empty((3, starts[-1]), dtype=numpy.int64)
    within = numpy.arange(page_size)
    for table, chunk, own, first in zip(tables, chunks, owned, starts, strict=False):
        sequence, start, end = chunk.sequence, chunk.start, chunk.end
        if end > own * page_size:
            refuse_short(sequence, end, page_size)
        table[:own] = sequence.pages
        to, page = first + end - start, start // page_size
        tokens[first:to] = sequence.tokens[start:end]
        positions[first:to] = numpy.arange(start, end)
        pages = table[page : -(-end // page_size), None]
        slots[first:to] = (pages * page_size + within).reshape(-1)[start - page * page_size :][: end - start]
    # One copy, for which the host does not wait.
    on_device = torch.from_numpy(rows).to(device, non_blocking=True)
    yields = tuple(end - 1 if chunk.last else -1 for chunk, end in zip(chunks, starts[1:], strict=True))
    on_host = torch.from_numpy(tables), torch.tensor(ends), torch.tensor(starts)
    return Inputs(phase, *on_device, *on_host, yields)


def refuse_short(sequence: Sequence, end: int, page_size: int) -> NoReturn:
    """IndexError: a pass that ends at a token of `sequence` for which it owns no page."""
    raise IndexError(
        f"sequence {sequence.id!r} owns {len(sequence.pages)} pages of {page_size} tokens and the pass ends at its "
        f"token {end}: whoever makes the batch must take {-(-end // page_size)} pages for it before"
    )


def dummy_inputs(phase: Phase, size: int, page_size: int, device: torch.device = HOST) -> Inputs:
    """`size` rows that read and write the scratch page only, for captures and measurements."""
    zeros = torch.zeros(size, dtype=torch.int64, device=device)
    if phase is Phase.Decode:
        scratch = torch.full((size,), SCRATCH_PAGE)
        sequences = scratch[:, None], torch.ones_like(scratch), torch.arange(size + 1)
        return Inputs(phase, zeros, zeros, scratch.to(device), *sequences, yields=tuple(range(size)))
    return Inputs(
        phase,
        tokens=zeros,
        positions=zeros,
        slots=torch.arange(size, device=device) % page_size,
        tables=torch.full((1, -(-size // page_size)), SCRATCH_PAGE),
        lengths=torch.tensor([size]),
        starts=torch.tensor([0, size]),
        yields=(size - 1,),
    )


def padded_step(inputs: Inputs, size: int) -> Inputs:
    """A decode step of `size` rows: those behind `inputs` read and write the scratch page, as buffers' padding does."""
    padding = dummy_inputs(inputs.phase, size - inputs.count, 1, inputs.tokens.device)
    wide = functional.pad(padding.tables, (0, inputs.tables.shape[1] - 1), value=SCRATCH_PAGE).to(inputs.tables.device)
    return replace(
        inputs,
        tokens=torch.cat((inputs.tokens, padding.tokens)),
        positions=torch.cat((inputs.positions, padding.positions)),
        slots=torch.cat((inputs.slots, padding.slots)),
        tables=torch.cat((inputs.tables, wide)),
        lengths=torch.cat((inputs.lengths, padding.lengths.to(inputs.lengths.device))),
        starts=torch.arange(size + 1, device=inputs.starts.device),
        yields=tuple(range(size)),
        hidden=None if inputs.hidden is None else functional.pad(inputs.hidden, (0, padding.count)),
    )
