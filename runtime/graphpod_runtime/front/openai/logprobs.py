"""Log-probabilities in the two forms of the OpenAI API."""

from collections.abc import Iterable

from graphpod_runtime.front.openai.reply import ChatLogprobs, ChatToken, TextLogprobs, TokenLogprob
from graphpod_runtime.front.text.logprobs import TokenInText
from graphpod_runtime.front.text.tokenizer import REPLACEMENT, Tokenizer


def chat_logprobs(
    tokenizer: Tokenizer, said: Iterable[TokenInText], *, as_ids: bool = False, with_own: bool = False
) -> ChatLogprobs:
    """Of an answer's tokens: a list of objects. `as_ids`: named `token_id:5`. `with_own`: the chosen token is among the
    alternatives, first where they would lack it.
    """

    def entry_of(id: int, logprob: float) -> TokenLogprob:
        found = tokenizer.bytes_of(id)
        name = _id_name(id) if as_ids else tokenizer.token(id)
        return TokenLogprob(name, logprob, None if found is None else list(found))

    content = []
    for one in said:
        assert one.logprob is not None, "a chat does not tell its prompt"
        own = entry_of(one.id, one.logprob.logprob)
        top = [entry_of(*entry) for entry in one.logprob.top]
        if with_own and all(id != one.id for id, _ in one.logprob.top):
            top.insert(0, own)
        content.append(ChatToken(own.token, own.logprob, own.bytes, top))
    return ChatLogprobs(content)


def text_logprobs(tokenizer: Tokenizer, said: Iterable[TokenInText], *, as_ids: bool = False) -> TextLogprobs:
    """Of a completion's tokens: an object of lists. The chosen token is the first of the named ones. `as_ids`: named
    `token_id:5`.
    """

    def name(id: int) -> str:
        return _id_name(id) if as_ids else _name(tokenizer, id)

    listed = list(said)
    tops: list[dict[str, float] | None] = []
    for one in listed:
        if one.logprob is None:
            tops.append(None)
        else:
            own = {name(one.id): one.logprob.logprob}
            tops.append(own | {name(id): value for id, value in one.logprob.top if id != one.id})
    return TextLogprobs(
        tokens=[name(one.id) for one in listed],
        token_logprobs=[None if one.logprob is None else one.logprob.logprob for one in listed],
        top_logprobs=tops,
        text_offset=[one.start for one in listed],
    )


def _id_name(id: int) -> str:
    return f"token_id:{id}"


def _name(tokenizer: Tokenizer, id: int) -> str:
    """A token's text; where that is no character its bytes, as OpenAI writes them, so that names differ."""
    text = tokenizer.token(id)
    if REPLACEMENT not in text or (found := tokenizer.bytes_of(id)) is None:
        return text
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in found)
