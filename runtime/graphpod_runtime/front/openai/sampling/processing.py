"""From a request's fields to what the engine does to its logits."""

from collections.abc import Sequence

from graphpod_runtime.front.openai.sampling.sampling_fields import MAX_BAD_WORDS, SamplingFields
from graphpod_runtime.front.requests.errors import ApiError, invalid
from graphpod_runtime.front.text.tokenizer import Tokenizer
from graphpod_runtime.wire.logit_processing import LogitProcessing


def processing_of(
    request: SamplingFields, repetition: float, budgets: Sequence[int], tokenizer: Tokenizer, vocabulary: int
) -> LogitProcessing:
    """The processing of every answer; `repetition` counts where the request has no penalty of its own, `budgets` are
    the most tokens of the answers. ApiError 400 for an id outside the vocabulary, for more min_tokens than an answer
    may have, and for a bad word without tokens.
    """
    bias = {int(name): float(amount) for name, amount in (request.logit_bias or {}).items()}
    refuse_outside(bias, "logit_bias", vocabulary)
    refuse_outside(request.allowed_token_ids or (), "allowed_token_ids", vocabulary)
    least = request.min_tokens or 0
    if budgets and least > (most := min(budgets)) > 0:
        message = f"min_tokens is {least} and the answer may have {most} tokens; ask for fewer, or raise max_tokens"
        raise invalid(message, param="min_tokens")
    return LogitProcessing(
        allowed=request.allowed_token_ids,
        bad_words=_bad_words(request.bad_words or (), tokenizer),
        min_tokens=least,
        bias=bias,
        repetition=repetition if request.repetition_penalty is None else float(request.repetition_penalty),
        frequency=float(request.frequency_penalty or 0),
        presence=float(request.presence_penalty or 0),
    )


def refuse_outside(ids: Sequence[int] | dict[int, float], param: str, vocabulary: int) -> None:
    """ApiError 400 for token ids that the model does not have."""
    if wrong := [id for id in ids if not 0 <= id < vocabulary]:
        raise _outside(wrong, param, vocabulary)


def _outside(wrong: list[int], param: str, vocabulary: int) -> ApiError:
    named = ", ".join(map(str, wrong[:16]))
    message = f"{param} names tokens that the model does not have: {named}; it has {vocabulary}, 0 to {vocabulary - 1}"
    return invalid(message, param=param)


def _bad_words(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Each word as it begins a text, and as it follows a blank, where that is as many other tokens: as vLLM has it."""
    found: list[list[int]] = []
    for at, word in enumerate(dict.fromkeys(words)):
        bare, after = (tokenizer.encode(blank + word.lstrip(), specials=False) for blank in ("", " "))
        if not bare:
            message = f"bad_words[{at}] has no tokens in this model; leave it out"
            raise invalid(message, param=f"bad_words[{at}]")
        found.append(bare)
        if after and after[0] != bare[0] and len(after) == len(bare):
            found.append(after)
    assert len(found) <= 2 * MAX_BAD_WORDS
    return found
