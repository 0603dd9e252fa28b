"""From what callers give to token ids: texts, token ids, conversations."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from pydantic import ValidationError

from graphpod_runtime.api.errors import RequestRefused
from graphpod_runtime.front.openai.messages import Conversation
from graphpod_runtime.front.openai.service import Service
from graphpod_runtime.front.openai.unbuilt_fields import Ignored
from graphpod_runtime.front.requests.errors import text_too_long
from graphpod_runtime.front.text.chat_template import TemplateError
from graphpod_runtime.front.text.tokenizer import TextTooLong

Prompt = str | Sequence[int]
Turns = Sequence[Mapping[str, Any]]
LONG_TEXT = 16 << 10
"""Characters that are tokenized on the caller's event loop; longer texts take milliseconds."""


def is_prompt(prompts: Prompt | Sequence[Prompt]) -> TypeGuard[Prompt]:
    """Whether this is one prompt, not several. RequestRefused for neither."""
    if isinstance(prompts, str):
        return True
    if not isinstance(prompts, Sequence) or not prompts:
        raise RequestRefused(
            f"give a text, a list of token ids, or a list of such prompts, not {prompts!r:.60}", "prompts"
        )
    return isinstance(prompts[0], int)


def is_conversation(messages: Turns | Sequence[Turns]) -> TypeGuard[Turns]:
    """Whether this is one conversation, not several. RequestRefused for neither."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestRefused(f"give a list of messages, or a list of such lists, not {messages!r:.60}", "messages")
    return isinstance(messages[0], Mapping)


def tokens_of(service: Service, prompt: Prompt) -> list[int]:
    """One prompt as token ids. ApiError for a text longer than the context."""
    if isinstance(prompt, str):
        return _tokenized(service, "prompts", lambda limit: service.tokenizer.encode(prompt, limit))
    if not all(type(token) is int for token in prompt):
        raise RequestRefused(f"a prompt is a text or a list of token ids, not {prompt!r:.60}", "prompts")
    return list(prompt)


def tokens_of_chat(service: Service, messages: Turns, variables: Mapping[str, Any] | None) -> list[int]:
    """A conversation as token ids, up to where the assistant speaks, by the model's chat template, which may read
    `variables`. RequestRefused and ApiError say what it cannot write.
    """
    try:
        body = Conversation.model_validate(
            {"messages": [dict(turn) for turn in messages], "chat_template_kwargs": variables and dict(variables)}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise RequestRefused(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", "messages") from None
    ignored: Ignored = {}
    body.take_ignored_of_messages(ignored)
    if ignored:
        raise RequestRefused(f"{next(iter(ignored))} is no field of a message; leave it out", "messages")
    turns = [message.plain(at) for at, message in enumerate(body.messages)]
    try:
        return _tokenized(
            service,
            "messages",
            lambda limit: service.tokenizer.encode_chat(turns, body.variables, limit, body.ending),
        )
    except TemplateError as error:
        raise RequestRefused(str(error), error.param) from error


def _tokenized(service: Service, param: str, work: Any) -> list[int]:
    limit = service.status.context_tokens
    try:
        tokens: list[int] = work(limit - 1)
    except TextTooLong as error:
        raise text_too_long(limit, error.found, param) from error
    return tokens
