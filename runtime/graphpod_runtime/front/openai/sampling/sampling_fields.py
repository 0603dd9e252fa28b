"""The fields of both endpoints that change logits, the number of answers, or how tokens are shown. As vLLM has them."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import PydanticCustomError

from graphpod_runtime.front.openai.fields import MAX_ALTERNATIVES, STRICT, whole_characters
from graphpod_runtime.front.requests.errors import shown

MAX_CHOICES = 128
"""Answers to one prompt."""
MAX_BIASED = 1024
"""Tokens that `logit_bias` or `allowed_token_ids` names."""
MAX_BAD_WORDS = 128
MAX_BAD_WORD = 64
"""Characters of a bad word."""
MAX_SCORED = 128
"""Tokens of `logprob_token_ids`."""


def _named(bias: dict[str, float]) -> dict[str, float]:
    """Every wrong name is reported at once; a long one shortened."""
    if wrong := [name for name in bias if not (name.isascii() and name.isdigit() and len(name) < 10)]:
        message = "names of fields must be token ids, and these are none: {names}"
        raise PydanticCustomError("value_error", message, {"names": ", ".join(map(shown, wrong[:16]))})
    return bias


Bias = Annotated[float, Field(ge=-100, le=100)]
BadWord = Annotated[str, Field(min_length=1, max_length=MAX_BAD_WORD), AfterValidator(whole_characters)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class SamplingFields(BaseModel):
    """Null means the default."""

    model_config = STRICT

    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    """Answers to each prompt, which share its KV cache. Choice 0 has the seed, the others seeds that follow from it.
    Default 1."""
    logit_bias: Annotated[dict[str, Bias], Field(max_length=MAX_BIASED), AfterValidator(_named)] | None = None
    """Token ids, each with a number from -100 to 100 that is added to its logit."""
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    """Subtracted from the logits of tokens that the answer has. Default 0."""
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    """Subtracted from a token's logit once for each time that the answer has it. Default 0."""
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    """For tokens that prompt or answer have: divides logits above 0, and multiplies the rest. Default as for
    `temperature`, else 1."""
    min_tokens: int | None = Field(None, ge=0, lt=2**31)
    """Until the answer has so many tokens, neither the model's end nor `stop_token_ids` nor `stop` ends it. An answer
    that its grammar completes ends all the same."""
    bad_words: Annotated[list[BadWord], Field(max_length=MAX_BAD_WORDS, fail_fast=True)] | None = None
    """Words that the answer cannot have, alone or after a blank: the last token of a word is masked after the tokens
    before it."""
    allowed_token_ids: Annotated[list[TokenId], Field(min_length=1, max_length=MAX_BIASED, fail_fast=True)] | None = (
        None
    )
    """Only these tokens can be chosen; the model's end is one of them only if it is listed."""
    include_stop_str_in_output: bool | None = False
    """The answer holds what stopped it, a string or a token."""
    skip_special_tokens: bool | None = True
    """false: write the names of special tokens."""
    spaces_between_special_tokens: bool | None = None
    """No effect. No blanks are written between tokens."""
    prompt_logprobs: Annotated[int, Field(ge=0, le=MAX_ALTERNATIVES)] | None = None
    """Send the log-probabilities of the prompt's tokens, and of this many likeliest ones at each place. In a stream
    only 0."""
    logprob_token_ids: Annotated[list[TokenId], Field(max_length=MAX_SCORED, fail_fast=True)] | None = None
    """With `logprobs`: send the log-probabilities of these tokens, instead of the likeliest ones."""
    return_tokens_as_token_ids: bool | None = False
    """In log-probabilities, write tokens as `token_id:5`."""
    truncate_prompt_tokens: int | None = Field(None, ge=-1, lt=2**31)
    """Cut the prompt to so many tokens; -1: to what the context has room for."""
    truncation_side: Literal["left", "right"] | None = None
    """Where `truncate_prompt_tokens` cuts. Default `left`: the end of the prompt stays."""

    @property
    def choices(self) -> int:
        """Answers to each prompt."""
        return self.n or 1
