"""Why a sequence ends without a next token, in words for the client."""

from graphpod_runtime.engine.schedule.sequence import Sequence


def not_finite(sequence: Sequence) -> str:
    return (
        f"the model gave no finite logits (NaN, or infinity) after {len(sequence.tokens)} tokens, so there is no next "
        "token; only this request ends. Check the weights, and whether spec.dtype is wide enough for this model"
    )


def nothing_left(sequence: Sequence) -> str:
    if sequence.grammar is not None and (problem := sequence.grammar.problem) is not None:
        return f"the answer's grammar gave up after {len(sequence.tokens)} tokens: {problem}; simplify the grammar"
    if sequence.grammar is not None and sequence.grammar.forced is not None:
        return (
            f"after {len(sequence.tokens) - sequence.prompt_len} tokens the reasoning is to end, and allowed_token_ids "
            "or bad_words of this request mask what ends it; leave it out of them, or send no thinking_token_budget"
        )
    return (
        f"after {len(sequence.tokens) - sequence.prompt_len} tokens of the answer no token can be chosen: "
        "allowed_token_ids, bad_words, min_tokens and the grammar of this request mask all of them together"
    )
