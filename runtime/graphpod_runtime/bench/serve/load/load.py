"""One load: everything that decides which requests are sent, and when."""

from enum import StrEnum

import msgspec

from graphpod_runtime.bench.serve.load.arrivals import Loop
from graphpod_runtime.bench.serve.load.length import Length
from graphpod_runtime.bench.serve.load.prompts import Form


class Api(StrEnum):
    """The endpoint that is asked."""

    Completions = "completions"
    Chat = "chat"

    @property
    def path(self) -> str:
        """Below /v1."""
        return "/chat/completions" if self is Api.Chat else "/completions"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths are tokens (words, where prompts are text). A conversation has `turns` requests, each with the whole
    history before it; `next_input` is the new part of each turn after the first.
    """

    loop: Loop
    conversations: int | None
    """None: without an end, for as long as another load runs."""
    input: Length
    output: Length
    turns: int = 1
    next_input: Length = Length(32, 32)
    prefix: int = 0
    """Tokens in front of `input` that a group shares."""
    groups: int = 1
    """Shared prefixes; conversations take them in turn."""
    cancel: float = 0.0
    """Share of requests whose client leaves after `cancel_after` pieces of the answer."""
    cancel_after: Length = Length(8, 8)
    sampling: dict[str, float] = {}
    """Fields of the request that choose tokens."""
    json_schema: bool = False
    """Answers follow the schema of `schema.py`."""
    ignore_eos: bool = True
    api: Api = Api.Completions
    form: Form = Form.Ids
    vocab: int = 32_000
    seed: str = "0"

    @property
    def requests(self) -> int | None:
        """All turns of all conversations."""
        return None if self.conversations is None else self.conversations * self.turns
