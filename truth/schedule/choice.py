"""What a row chooses among: the scores of the tokens that a log-probability names. The largest wins."""

from collections import Counter
from collections.abc import Sequence as List

import torch

from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.kernels.sampling.draw import exponentials
from graphpod_runtime.wire.logit_processing import LogitProcessing
from graphpod_runtime.wire.messages import Logprob
from truth.models import VOCAB


def scores(logprob: Logprob, sampling: Sampling, position: int, answer: List[int] = ()) -> dict[int, float]:
    """By token. Those of a greedy row are its log-probabilities, processed behind the `answer` so far; a row that draws
    adds Gumbel noise to them, keyed by its seed and the `position` of the token to come (serving contract 1).
    `sampling` has a temperature and no filter, and of processors those that add to logits.
    """
    named = processed(dict(logprob.top), sampling.processing, answer)
    if sampling.greedy:
        return named
    count = max(VOCAB, 1 + max(named, default=0))  # vocabularies that ranks divide are a little larger
    noise = exponentials(torch.tensor([sampling.seed]), torch.tensor([position]), count)[0].double().log()
    return {token: found - float(noise[token]) / sampling.steepness for token, found in named.items()}


def processed(named: dict[int, float], how: LogitProcessing, answer: List[int]) -> dict[int, float]:
    """Log-probabilities by token, up to a number that they share, with what `how` adds to them; without the tokens that
    it masks. By the definitions, one token at a time.
    """
    if how.repetition != 1 or how.min_tokens:
        raise ValueError("log-probabilities do not show the signs of logits, nor which tokens end a text")
    counts, kept = Counter(answer), dict(named)
    for *before, last in how.bad_words:
        if list(answer[len(answer) - len(before) :]) == before and len(answer) >= len(before):
            kept.pop(last, None)
    return {
        token: found + how.bias.get(token, 0) - how.frequency * counts[token] - how.presence * (counts[token] > 0)
        for token, found in kept.items()
        if how.allowed is None or token in how.allowed
    }


def rivals(scored: dict[int, float], near: float) -> set[int]:
    """The tokens less than `near` behind the best, which is one of them: of two equal ones either may be the one that
    was chosen."""
    best = max(scored.values())
    return {token for token, score in scored.items() if best - score < near}
