"""A model by our attention against transformers' own: the same text, the same weights, before anything is captured."""

from typing import Any

import torch
from torch import Tensor

from graphpod_runtime.kernels.paged_attention import paged_attention
from graphpod_runtime.models.by_transformers import interface
from graphpod_runtime.models.by_transformers.attention_call import AttentionCall
from graphpod_runtime.models.by_transformers.layout import Layout
from graphpod_runtime.models.by_transformers.rehearsal import EXACT, ROUNDED, Rehearsal
from graphpod_runtime.models.by_transformers.unsupported import FamilyUnsupported, Lack

TOKENS = 24
"""Of the text, or as many as a sequence may have."""
PAGE = 8


def prove(seen: Rehearsal, layout: Layout, positions: int, device: torch.device) -> None:
    """FamilyUnsupported unless the logits of a text are those of transformers' eager attention."""
    count = min(TOKENS, positions)
    tokens = _text(seen, count).to(device)
    wanted = _own(seen, tokens)
    with torch.no_grad(), interface.passing(seen.masks, _Paged(layout, count, device)):
        hidden = seen.parts.hidden(tokens, torch.arange(count, device=device))
        furthest = float((seen.parts.logits(hidden).float() - wanted).abs().max())
    allowed = (EXACT if seen.exact else ROUNDED) * float(wanted.abs().max())
    if not furthest <= allowed:
        raise FamilyUnsupported(
            Lack.Differs,
            f"{type(seen.parts.whole).__name__}: logits of {count} tokens differ by {furthest:.3g} from transformers' "
            f"own, where {allowed:.3g} is allowed; its attention or its positions are others than this engine's",
        )


def _text(seen: Rehearsal, count: int) -> Tensor:
    """Tokens [count] by chance. None is padding, which the model's own count of positions leaves out."""
    tokens = torch.randint(seen.vocab, (count,), generator=torch.Generator().manual_seed(1))
    padding = seen.parts.positions.padding
    return tokens if padding is None else tokens.where(tokens != padding[0], (padding[0] + 1) % seen.vocab)


def _own(seen: Rehearsal, tokens: Tensor) -> Tensor:
    """The logits of `tokens` by transformers alone."""
    whole: Any = seen.parts.whole
    with seen.parts.as_transformers_has_it(), torch.no_grad():
        logits: Tensor = whole(input_ids=tokens[None], use_cache=False).logits[0].float()
    return logits


class _Paged:
    """Attention of one sequence over pages of its own."""

    def __init__(self, layout: Layout, count: int, device: torch.device) -> None:
        pages = -(-count // PAGE)
        self._layout, self._size = layout, (pages, PAGE, layout.kv_heads, layout.width)
        self._slots = torch.arange(count, device=device)
        self._tables = torch.arange(pages, device=device)[None]
        self._lengths, self._starts = torch.tensor([count]), torch.tensor([0, count])

    def __call__(self, number: int, call: AttentionCall, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        layout = self._layout
        rows, keys, values = layout.queries(call, q), layout.keys(call, k), layout.keys(call, v)
        cache = [keys.new_zeros(self._size) for _ in range(2)]
        out, sinks = torch.empty_like(rows), layout.sinks(call)
        own = (self._slots, self._tables, self._lengths, self._starts)
        paged_attention(rows, keys, values, *cache, *own, layout.scale, call.window, call.cap, sinks, 1.0, 1.0, out)
        return layout.result(call, out.flatten(1))
