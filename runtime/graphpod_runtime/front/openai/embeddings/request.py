"""Requests for vectors, in the forms of OpenAI and vLLM: pydantic, because they come from outside."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from graphpod_runtime.front.openai.fields import (
    MAX_MESSAGES,
    MAX_SALT,
    STRICT,
    Text,
    Tokens,
    whole_characters,
)
from graphpod_runtime.front.openai.messages import Conversation, Message
from graphpod_runtime.front.openai.unbuilt_fields import Ignored, take_unknown
from graphpod_runtime.front.requests.errors import invalid

MAX_INPUTS = 2048
"""Texts of one request, as OpenAI has it."""
NOT_BUILT: dict[str, tuple[Any, ...]] = {
    "chat_template": (),
    "padding": ("do_not_pad",),
    "embed_dtype": ("float32",),
    "endianness": ("native", "little"),
    "mm_processor_kwargs": ({},),
}
TEXTS_NOT_BUILT = NOT_BUILT | {
    "chat_template_kwargs": ({},),
    "instruction": ("",),
    "max_tokens_per_query": (0,),
    "max_tokens_per_doc": (0,),
    "add_special_tokens": (True,),
}


def _few(value: Any) -> Any:
    """One error for too many texts, not one for each form that they could have had."""
    if isinstance(value, list) and len(value) > MAX_INPUTS and not isinstance(value[0], int):
        message = "holds {count} texts; one request takes {most}"
        raise PydanticCustomError("too_many_texts", message, {"count": len(value), "most": MAX_INPUTS})
    return value


def _plain(value: Any) -> Any:
    """Documents as Jina and Cohere write them, `{"text": …}`, as their texts."""
    if not isinstance(value, list):
        return value
    return [one["text"] if isinstance(one, dict) and one.keys() == {"text"} else one for one in _few(value)]


SeveralTexts = Annotated[list[Text], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]
SeveralPrompts = Annotated[list[Tokens], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]
Texts = Annotated[Text | SeveralTexts, BeforeValidator(_few)]


class VectorRequest(BaseModel):
    """The fields that all three share. Null means the default."""

    model_config = STRICT
    not_built: ClassVar[dict[str, tuple[Any, ...]]] = NOT_BUILT

    model: str | None = None
    """The model's name, as `GET /v1/models` lists it. Default: the one that is served."""
    truncate_prompt_tokens: int | None = Field(None, ge=-1, lt=2**31)
    """Cut each text to so many tokens; -1: to what the context holds. Default: a longer text is refused."""
    truncation_side: Literal["left", "right"] | None = None
    """Where a text is cut. Default `right`: its end goes."""
    use_activation: bool | None = None
    """Scale each vector to length 1. Default true."""
    priority: int | None = Field(None, ge=-(2**31), lt=2**31)
    """Requests with lower numbers are scheduled first. Default 0."""
    cache_salt: Annotated[str, Field(min_length=1, max_length=MAX_SALT), AfterValidator(whole_characters)] | None = None
    """Only requests of the same salt share the KV cache of a common beginning."""
    user: str | None = None
    """No effect."""

    def take_ignored(self) -> Ignored:
        """The names of the fields that were sent and have no effect. ApiError 400 naming a field that would change the
        answer and is not built.
        """
        ignored: Ignored = {} if self.user is None else {"user": None}
        take_unknown(self, self.not_built, "", "", ignored)
        return ignored


class EmbeddingRequest(VectorRequest, Conversation):
    """POST /v1/embeddings."""

    input: Annotated[Text | SeveralTexts | Tokens | SeveralPrompts | None, BeforeValidator(_few)] = None
    """Text or token ids, alone or in a list; each gives one vector. Either this or `messages`."""
    messages: Annotated[list[Message], Field(fail_fast=True, max_length=MAX_MESSAGES)] | None = None  # type: ignore[assignment]
    """A conversation, which gives one vector."""
    encoding_format: Literal["float", "base64"] | None = None
    """Numbers, or little-endian float32 in base64. Default `float`."""
    dimensions: int | None = Field(None, ge=1, lt=2**31)
    """Length of the vectors. Other lengths than the model's own need a model whose config.json says `is_matryoshka` or
    has `matryoshka_dimensions`."""
    add_special_tokens: bool | None = None
    """Add the tokens that begin or end a text of this model. Default: true for `input`. Not with `messages`."""

    def take_ignored(self) -> Ignored:
        """Those of the messages included. ApiError 400 without exactly one of input and messages."""
        if (self.input is None) == (not self.messages):
            raise invalid("send either input or messages", param="input", code="missing_required_parameter")
        if self.messages and self.add_special_tokens:
            message = "add_special_tokens is for input; a chat template writes its own tokens"
            raise invalid(message, param="add_special_tokens", code="unsupported_parameter")
        ignored = super().take_ignored()
        self.take_ignored_of_messages(ignored)
        return ignored


class ScoreRequest(VectorRequest):
    """POST /v1/score: two sides, by any of four pairs of names."""

    not_built = TEXTS_NOT_BUILT

    text_1: Texts | None = None
    """One text, or as many as there are on the other side."""
    text_2: Texts | None = None
    """Texts that are compared with those of `text_1`."""
    queries: Texts | None = None
    """Another name of `text_1`, with `documents` or `items`."""
    documents: Texts | None = None
    """Another name of `text_2`, with `queries`."""
    items: Texts | None = None
    """Another name of `text_2`, with `queries`."""
    data_1: Texts | None = None
    """Another name of `text_1`, with `data_2`."""
    data_2: Texts | None = None
    """Another name of `text_2`, with `data_1`."""

    @property
    def sides(self) -> tuple[list[str], list[str]]:
        """The texts to compare, as many on both sides. ApiError 400 for other fields, and counts that do not fit."""
        names = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))
        sent = [name for name in dict.fromkeys(sum(names, ())) if getattr(self, name) is not None]
        pair = next((pair for pair in names if sorted(pair) == sorted(sent)), None)
        if pair is None:
            text = "send text_1 and text_2, or queries and documents"
            raise invalid(text, param=sent[0] if sent else "text_1", code="missing_required_parameter")
        first, second = (_listed(getattr(self, name)) for name in pair)
        if len(first) == 1:
            first = first * len(second)
        if len(first) != len(second):
            raise invalid(
                f"{pair[0]} has {len(first)} texts and {pair[1]} has {len(second)}; send one or as many", param=pair[0]
            )
        return first, second


class RerankRequest(VectorRequest):
    """POST /v1/rerank."""

    not_built = TEXTS_NOT_BUILT

    query: Text
    """What the documents are compared with."""
    documents: Annotated[Texts, BeforeValidator(_plain)]
    """The texts to order; each may also be an object with a `text`."""
    top_n: int | None = Field(None, ge=0, lt=2**31)
    """Send so many of the closest. Default: all."""
    return_documents: bool | None = True
    """false: the results have no `document`."""

    @property
    def listed(self) -> list[str]:
        """The documents."""
        return _listed(self.documents)


def _listed(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts
