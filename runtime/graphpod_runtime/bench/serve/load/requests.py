"""The requests of a load. Each conversation is a function of the seed and its number alone, so that the same load is
the same load on any number of driver processes.
"""

from random import Random
from typing import Any

import msgspec

from graphpod_runtime.bench.serve.load.load import Api, Load
from graphpod_runtime.bench.serve.load.prompts import Form, ids, words
from graphpod_runtime.bench.serve.load.schema import RESPONSE_FORMAT


class Turn(msgspec.Struct, frozen=True):
    """One request: what is new in its prompt, the tokens it asks for, and after how many pieces its client leaves."""

    new: list[int] | str
    output: int
    cancel_after: int | None


class Conversation(msgspec.Struct, frozen=True):
    """`prefix` is what the group shares, empty without one."""

    prefix: list[int] | str
    turns: tuple[Turn, ...]


def conversation(load: Load, number: int) -> Conversation:
    """The conversation of that number, from 0."""
    rng = Random(f"{load.seed}:{number}")
    group = Random(f"{load.seed}:prefix:{number % load.groups}")
    return Conversation(
        prefix=_text(load, group, load.prefix),
        turns=tuple(
            Turn(
                new=_text(load, rng, (load.next_input if at else load.input).draw(rng)),
                output=load.output.draw(rng),
                cancel_after=load.cancel_after.draw(rng) if rng.random() < load.cancel else None,
            )
            for at in range(load.turns)
        ),
    )


def _text(load: Load, rng: Random, tokens: int) -> list[int] | str:
    return ids(rng, tokens, load.vocab) if load.form is Form.Ids else words(rng, tokens)


def body(load: Load, model: str, talk: Conversation, answers: list[str]) -> dict[str, Any]:
    """The JSON of the turn that follows `answers`, which are what the server said in the turns before it."""
    turn = talk.turns[len(answers)]
    common = {
        "model": model,
        "max_tokens": turn.output,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({"ignore_eos": True} if load.ignore_eos else {}),
        **({"response_format": RESPONSE_FORMAT} if load.json_schema else {}),
        **load.sampling,
    }
    if load.api is Api.Chat:
        return {"messages": _messages(talk, answers)} | common
    return {"prompt": _prompt(talk, answers)} | common


def _messages(talk: Conversation, answers: list[str]) -> list[dict[str, Any]]:
    said = [{"role": "system", "content": talk.prefix}] if talk.prefix else []
    for turn, answer in zip(talk.turns, answers, strict=False):
        said += [{"role": "user", "content": turn.new}, {"role": "assistant", "content": answer}]
    return [*said, {"role": "user", "content": talk.turns[len(answers)].new}]


def _prompt(talk: Conversation, answers: list[str]) -> list[int] | str:
    first = talk.turns[0].new
    if isinstance(first, list):
        assert not answers, "a server returns no token ids, so a conversation of ids has one turn"
        return [*talk.prefix, *first]
    news = [str(turn.new) for turn in talk.turns]
    history = "".join(f"{new}{answer} " for new, answer in zip(news, answers, strict=False))
    return f"{talk.prefix} {history}{news[len(answers)]}".strip()
