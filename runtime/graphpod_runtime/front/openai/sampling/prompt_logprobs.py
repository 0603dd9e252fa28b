"""Log-probabilities of prompts, in vLLM's form."""

from collections.abc import Iterable

import msgspec

from graphpod_runtime.front.text.tokenizer import Tokenizer
from graphpod_runtime.wire.messages import Logprob


class PromptLogprob(msgspec.Struct, frozen=True):
    """Of one token where it stands, or could stand. `rank` 1 is the likeliest."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""A token after the other; nothing precedes the first."""


def prompt_logprobs(tokenizer: Tokenizer, scores: Iterable[Logprob], alternatives: int) -> PromptLogprobs:
    """By id, the token that stands there and so many likeliest ones; `scores` begin with the second token."""
    listed: PromptLogprobs = [None]
    for one in scores:
        entries = {str(one.token): PromptLogprob(one.logprob, one.rank, tokenizer.token(one.token))}
        for rank, (id, value) in enumerate(one.top[:alternatives], 1):
            entries.setdefault(str(id), PromptLogprob(value, rank, tokenizer.token(id)))
        listed.append(entries)
    return listed
