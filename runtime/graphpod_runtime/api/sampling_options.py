"""How to generate: the fields of an HTTP request that concern the answer, with the same names, bounds and defaults."""

from typing import Any

from pydantic import ConfigDict, Field, model_validator

from graphpod_runtime.front.openai.fields import MAX_ALTERNATIVES
from graphpod_runtime.front.openai.request import UNUSED, GenerationRequest

OF_HTTP = frozenset({"model", "stream", "stream_options", "return_token_ids", *UNUSED})
"""Fields of a request over HTTP that are no option: an argument of the call, always on, or without effect."""


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
