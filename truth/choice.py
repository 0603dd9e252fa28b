"""What a row chooses among: the scores of the tokens that a log-probability names. The largest wins."""

import torch

from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.kernels.sampling.draw import exponentials
from graphpod_runtime.wire.messages import Logprob
from truth.models import VOCAB


def scores(logprob: Logprob, sampling: Sampling, position: int) -> dict[int, float]:
    """By token. Those of a greedy row are its log-probabilities; a row that draws adds Gumbel noise to them, keyed by
    its seed and the `position` of the token to come (serving contract 1). `sampling` has a temperature and no filter.
    """
    if sampling.greedy:
        return dict(logprob.top)
    noise = exponentials(torch.tensor([sampling.seed]), torch.tensor([position]), VOCAB)[0].double().log()
    return {token: found - float(noise[token]) / sampling.steepness for token, found in logprob.top}


def rivals(scored: dict[int, float], near: float) -> set[int]:
    """The tokens less than `near` behind the best, which is one of them: of two equal ones either may be the one that
    was chosen."""
    best = max(scored.values())
    return {token for token, score in scored.items() if best - score < near}
