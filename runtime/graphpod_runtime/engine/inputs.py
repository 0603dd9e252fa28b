"""From a batch to the tensors one forward pass reads."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphpod_policy import Phase
from graphpod_runtime.attention.base import Metadata
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.engine.sequence import Batch, Chunk, DecodeBatch, PrefillBatch
from graphpod_runtime.models.base import HOST


@dataclass(frozen=True, slots=True)
class Inputs:
    """One pass over `count` real rows: tokens and positions [count], attention's metadata, and for each sequence
    of the batch the row that yields its next token (-1: none, its prompt goes on). `input_logprobs`: the rows of
    prompt tokens are wanted, too.
    """

    phase: Phase
    tokens: Tensor
    positions: Tensor
    metadata: Metadata
    yields: tuple[int, ...]
    input_logprobs: bool = False

    @property
    def count(self) -> int:
        """Real rows."""
        return self.tokens.shape[0]


def inputs_of(batch: Batch, page_size: int, device: torch.device = HOST) -> Inputs:
    """The unpadded inputs of `batch`, its tokens and positions on `device`."""
    if isinstance(batch, DecodeBatch):
        phase = Phase.Decode
        chunks = tuple(Chunk(seq, len(seq.tokens) - 1, len(seq.tokens)) for seq in batch.sequences)
    else:
        phase, chunks = Phase.Prefill, batch.chunks
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    starts, yields = [0], []
    for chunk in chunks:
        pages = chunk.sequence.pages
        tokens += chunk.sequence.tokens[chunk.start : chunk.end]
        positions += range(chunk.start, chunk.end)
        slots += [pages[at // page_size] * page_size + at % page_size for at in range(chunk.start, chunk.end)]
        starts.append(len(tokens))
        yields.append(len(tokens) - 1 if chunk.last else -1)
    width = max(len(chunk.sequence.pages) for chunk in chunks)
    tables = [chunk.sequence.pages + [SCRATCH_PAGE] * (width - len(chunk.sequence.pages)) for chunk in chunks]
    metadata = Metadata(
        slots=torch.tensor(slots),
        tables=torch.tensor(tables),
        lengths=torch.tensor([chunk.end for chunk in chunks]),
        starts=torch.tensor(starts),
    )
    on_device = (torch.tensor(values, device=device) for values in (tokens, positions))
    scores = isinstance(batch, PrefillBatch) and batch.scores_prompt
    return Inputs(phase, *on_device, metadata, tuple(yields), input_logprobs=scores)


def dummy_inputs(phase: Phase, size: int, page_size: int, device: torch.device = HOST) -> Inputs:
    """`size` rows that read and write the scratch page only, for captures and measurements."""
    zeros = torch.zeros(size, dtype=torch.int64, device=device)
    if phase is Phase.Decode:
        scratch = torch.full((size,), SCRATCH_PAGE)
        metadata = Metadata(scratch, scratch[:, None], torch.ones_like(scratch), torch.arange(size + 1))
        return Inputs(phase, zeros, zeros, metadata, tuple(range(size)))
    metadata = Metadata(
        slots=torch.arange(size) % page_size,
        tables=torch.full((1, -(-size // page_size)), SCRATCH_PAGE),
        lengths=torch.tensor([size]),
        starts=torch.tensor([0, size]),
    )
    return Inputs(phase, zeros, zeros, metadata, (size - 1,))
