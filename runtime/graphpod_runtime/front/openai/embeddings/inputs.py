"""The inputs of a request for vectors as token ids, cut where the request says so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphpod_runtime.front.openai.embeddings.request import VectorRequest
from graphpod_runtime.front.openai.service import Service
from graphpod_runtime.front.requests.errors import invalid
from graphpod_runtime.front.text.tokenizer import Tokenizer
from graphpod_runtime.wire.bounds import outside


@dataclass(frozen=True, slots=True)
class Cut:
    """How long an input may be, in tokens, and what happens to a longer one: `most` None, it is refused."""

    most: int | None
    left: bool

    @classmethod
    def of(cls, body: VectorRequest, context: int) -> "Cut":
        """What the request asks for. ApiError 400 for more tokens than the context holds, of which one stays free, as
        for every prompt.
        """
        asked, most = body.truncate_prompt_tokens, context - 1
        if asked is not None and asked > most:
            message = f"truncate_prompt_tokens is {asked}; this model's context holds {most} tokens of a prompt"
            raise invalid(message, param="truncate_prompt_tokens")
        if asked == 0:
            raise invalid("truncate_prompt_tokens is 0; send 1 or more, or -1", param="truncate_prompt_tokens")
        return cls(None if asked is None else most if asked < 0 else asked, body.truncation_side == "left")

    def ids(self, ids: list[int]) -> list[int]:
        """Token ids, cut."""
        if self.most is None or len(ids) <= self.most:
            return ids
        return ids[-self.most :] if self.left else ids[: self.most]

    def text(self, tokenizer: Tokenizer, text: str, limit: int, *, specials: bool) -> list[int]:
        """A text as token ids, cut between the tokens that begin and end it. TextTooLong for more than `limit` where it
        is not to be cut.
        """
        if self.most is None:
            return tokenizer.encode(text, limit, specials=specials)
        most = tokenizer.longest_text(self.most)
        text = text[-most:] if self.left else text[:most]
        plain = tokenizer.encode(text, specials=False)
        whole = tokenizer.encode(text) if specials else plain
        before, after = _around(whole, plain)
        room = max(0, self.most - len(before) - len(after))
        kept = Cut(room, self.left).ids(plain) if room else []
        return self.ids([*before, *kept, *after])


def _around(whole: list[int], plain: list[int]) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and after the tokens of a text."""
    added = len(whole) - len(plain)
    before = next((at for at in range(added + 1) if whole[at : at + len(plain)] == plain), added)
    return whole[:before], whole[before + len(plain) :]


async def token_ids(
    service: Service, entries: Sequence[str | list[int]], cut: Cut, param: str, *, specials: bool = True
) -> list[list[int]]:
    """Every entry as token ids. ApiError 400 for one that is empty, too long, or foreign to the model."""
    texts = [entry for entry in entries if isinstance(entry, str)]
    if texts:
        encode: Callable[[int], list[list[int]]] = lambda limit: [  # noqa: E731
            cut.text(service.tokenizer, entry, limit, specials=specials) if isinstance(entry, str) else cut.ids(entry)
            for entry in entries
        ]
        prompts = await service.tokenized(encode, sum(map(len, texts)), param, len(entries))
    else:
        prompts = [cut.ids(list(entry)) for entry in entries if not isinstance(entry, str)]
    limit, vocabulary = service.status.context_tokens, service.status.vocabulary
    for prompt in prompts:
        if not prompt:
            raise invalid(f"{param} has an empty text; each needs at least one token", param=param)
        if (message := outside(prompt, vocabulary)) is not None:
            raise invalid(f"{param}: {message}; it is out of vocabulary", param=param)
        if len(prompt) >= limit:
            raise invalid(
                f"This model's maximum context length is {limit} tokens, of which an embedding's input has at most "
                f"{limit - 1}. However, your {param} has {len(prompt)}. Shorten it, or send truncate_prompt_tokens -1.",
                param=param,
                code="context_length_exceeded",
            )
    return prompts
