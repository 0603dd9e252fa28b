"""How to generate: the fields of an HTTP request that concern the answer, with the same names, bounds and defaults."""

from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from graphpod_runtime.front.openai.fields import MAX_ALTERNATIVES
from graphpod_runtime.front.openai.request import UNUSED, GenerationRequest

OF_HTTP = frozenset(
    {
        "model",
        "n",
        "stream",
        "stream_options",
        "return_token_ids",
        "return_tokens_as_token_ids",
        "truncate_prompt_tokens",
        "truncation_side",
        *UNUSED,
    }
)
"""Fields of a request over HTTP that are no option: an argument of the call, always on, or without effect. Several
answers to a prompt are several prompts of one call."""


class SamplingOptions(GenerationRequest):
    """Frozen. None means the default, as over HTTP: temperature, top_p and top_k are those of the model's
    generation_config.json, `max_tokens` is what the context leaves. pydantic's ValidationError, a ValueError, names a
    field that is unknown or out of bounds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    model: str = Field("", exclude=True)
    logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES)
    """Log-probabilities of the answer's tokens, each with so many of the likeliest."""
    prompt_logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES)
    """The same of the prompt's tokens."""

    @model_validator(mode="before")
    @classmethod
    def _options_alone(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and (wrong := sorted(OF_HTTP & fields.keys())):
            raise ValueError(f"{wrong[0]} is a field of HTTP requests, not an option; leave it out")
        return fields

    @model_validator(mode="after")
    def _scored(self) -> Self:
        if self.logprob_token_ids and self.logprobs is None:
            raise ValueError("logprob_token_ids is only allowed with logprobs")
        return self

    @property
    def alternatives(self) -> int | None:
        """Alternatives to each token of the answer; None: no log-probabilities."""
        return len(self.logprob_token_ids) if self.logprob_token_ids else self.logprobs
