"""Every way to choose a token, once, at a start: what is compiled then does not keep requests waiting, and the memory
that it takes at its peak stays free of KV cache.
"""

import torch
from torch import Tensor

from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.engine.forward.sampling.processors import History
from graphpod_runtime.engine.forward.sampling.sampler import Sampler, greedy, rows_at_once
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.yielded import NOTHING_LEFT
from graphpod_runtime.kernels.sampling.draw import drawer_for
from graphpod_runtime.kernels.sampling.token_mask import masker_for, words_of
from graphpod_runtime.wire.logit_processing import LogitProcessing

FILTERS = Sampling(1.0, 0.9, seed=0, top_k=50, min_p=0.01)
PROCESSING = LogitProcessing(
    allowed=[0, 1], bad_words=[[0, 1]], min_tokens=2, bias={0: 1.0}, repetition=1.1, frequency=0.1, presence=0.1
)
# Without filters, too: each way has kernels of its own.
WAYS = (
    Sampling(1.0, seed=0),
    FILTERS,
    Sampling(1.0, 0.9, seed=0, top_k=50, min_p=0.01, processing=PROCESSING),
)


def rehearsed(logits: Tensor, positions: Tensor, slot_tokens: Tensor, context: int) -> list[Tensor]:
    """Tokens of logits [rows, vocab], drawn in every way from sequences of `context` tokens, which are all on the
    scratch page of `slot_tokens`. Every row has a grammar that allows all tokens."""
    rows, vocab = logits.shape
    device, at_once, chosen = logits.device, rows_at_once(vocab, context), greedy(logits)
    allowed = torch.full((rows, words_of(vocab)), -1, dtype=torch.int32, device=device)
    # The caller keeps the logits without masks, as a pass does that scores its answers.
    each = torch.arange(rows, dtype=torch.int32, device=device)
    logits, chosen = masker_for(device)(logits, chosen, each, allowed, NOTHING_LEFT)
    pages = [SCRATCH_PAGE] * -(-context // slot_tokens.shape[1])
    sampler, drawn = Sampler(drawer_for(device), device, (0,), at_once), []
    for way in WAYS:
        # Where rows are processed in parts, the first part is as large as any.
        count = rows if not way.processing.changes else min(rows, at_once)
        members = tuple(
            Sequence(str(row), [0] * context, context - 1, 2, way, pages=pages) if way.processing.changes
            else Sequence(str(row), [0], 1, 1, way)
            for row in range(count)
        )  # fmt: skip
        batch = sampler.batch(members)
        history = History.of_prompts(slot_tokens, members, batch.reading) if batch.reading else None
        drawn.append(batch.tokens(logits[:count], chosen[:count], positions[:count], history))
    return drawn
