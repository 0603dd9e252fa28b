"""Prompts that the request allows to be cut."""

from graphpod_runtime.front.openai.sampling.sampling_fields import SamplingFields
from graphpod_runtime.front.requests.errors import invalid

CUT_CONTEXTS = 8
"""Contexts of tokens that a text which is to be cut may have: all of it is tokenized."""


def contexts_of(request: SamplingFields) -> int:
    """How many contexts of tokens a text may have before it is cut."""
    return 1 if request.truncate_prompt_tokens is None else CUT_CONTEXTS


def truncated(request: SamplingFields, prompt: list[int], context: int, answer: int | None) -> list[int]:
    """The part of `prompt` that the request wants; -1: what leaves room for an answer of so many tokens (None: one).
    ApiError 400 for more than the `context`.
    """
    most = request.truncate_prompt_tokens
    if most is None:
        return prompt
    if most > context:
        message = f"truncate_prompt_tokens is {most}; this model's context has {context} tokens"
        raise invalid(message, param="truncate_prompt_tokens")
    if most < 0:
        most = max(0, context - max(1, answer or 1))
    if len(prompt) <= most:
        return prompt
    return prompt[:most] if request.truncation_side == "right" else prompt[len(prompt) - most :]
