"""What the library answers: frozen values."""

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from graphpod_runtime.wire.messages import FinishReason, Logprob


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one prompt and its answer; the token that stopped the answer counts. `cached_tokens` of the prompt were
    in the prefix cache.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Generated:
    """The answer to one prompt. A token that stopped it is not among `token_ids`. Log-probabilities where the options
    ask for them: one for each of `token_ids`, and one for each token of the prompt from its second on.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    prompt_token_ids: tuple[int, ...]
    usage: Usage
    logprobs: tuple[Logprob, ...] | None = None
    prompt_logprobs: tuple[Logprob, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """The vector of one prompt, float32 of length 1, and how many tokens the prompt has."""

    vector: NDArray[numpy.float32]
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the answer to prompt `index`; the last one has `finish_reason` and `usage`. All texts joined are the
    whole text; tokens whose characters are not complete yet come with a later chunk.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    logprobs: tuple[Logprob, ...] | None = None
    prompt_logprobs: tuple[Logprob, ...] | None = None
    """With the first."""
    usage: Usage | None = None
