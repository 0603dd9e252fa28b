"""What people type stays text: `<|im_end|>` in a message ends no turn.

A chat template writes control tokens and messages into one text. Before it runs, the names of control tokens that a
message holds are replaced by marks. In its result a control token that is still spelled out is the template's own: it
becomes a stand-in, the marks become what was typed, and a copy of the tokenizer encodes the text. That copy reads the
names of control tokens as text and knows the stand-ins, whose ids are exchanged at the end. The marks hold a random
number of this process, so a message cannot spell one.
"""

import re
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import tokenizers

WINDOW = 16 << 10
"""Characters that are searched at a time."""


@dataclass
class ControlTokens:
    """The special tokens of one tokenizer. Its methods are safe to call from worker threads."""

    tokenizer: tokenizers.Tokenizer
    _nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        added = self.tokenizer.get_added_tokens_decoder()
        self._tokens = [(id, token) for id, token in sorted(added.items()) if token.special and token.content]
        self._numbers = {token.content: number for number, (_, token) in enumerate(self._tokens)}
        # As the tokenizer does: the longest name that begins at a place.
        names = sorted(self._numbers, key=len, reverse=True)
        self._longest = max(map(len, names), default=0)
        self._names = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        self._marks = re.compile(f"\ue000{self._nonce}([0-9]+)\ue001")

    def typed_in(self, value: Any) -> bool:
        """Whether a string in `value` (what JSON can hold) spells a control token."""
        match value:
            case str():
                # In windows: a search holds the interpreter's lock, and text that almost spells a name makes it slow.
                return any(
                    self._names.search(value, start, start + WINDOW + self._longest)
                    for start in range(0, len(value), WINDOW)
                )
            case dict():
                return any(self.typed_in(key) or self.typed_in(item) for key, item in value.items())
            case list() | tuple():
                return any(map(self.typed_in, value))
        return False

    def marked(self, value: Any) -> Any:
        """`value` with marks for the control tokens that its strings spell."""
        match value:
            case str():
                return self._names.sub(lambda name: f"\ue000{self._nonce}{self._numbers[name[0]]}\ue001", value)
            case dict():
                return {self.marked(key): self.marked(item) for key, item in value.items()}
            case list() | tuple():
                return [self.marked(item) for item in value]
        return value

    def stood_in(self, text: str) -> str:
        """A template's text for `apart`: stand-ins for its own control tokens, what was typed instead of marks."""
        text = self._names.sub(lambda name: self._stand_in(self._numbers[name[0]]), text)
        return self._marks.sub(lambda mark: self._tokens[int(mark[1])][1].content, text)

    @cached_property
    def apart(self) -> tokenizers.Tokenizer:
        """The copy, made when it is first wanted: most conversations never spell a control token."""
        copy = tokenizers.Tokenizer.from_str(self.tokenizer.to_str())
        copy.encode_special_tokens = True
        copy.add_tokens(
            [
                tokenizers.AddedToken(
                    self._stand_in(number), lstrip=token.lstrip, rstrip=token.rstrip, normalized=False
                )
                for number, (_, token) in enumerate(self._tokens)
            ]
        )
        return copy

    def exchanged(self, ids: list[int]) -> list[int]:
        """The ids that `apart` gave, with those of control tokens for those of their stand-ins."""
        own = {self.apart.token_to_id(self._stand_in(number)): id for number, (id, _) in enumerate(self._tokens)}
        return [own.get(id, id) for id in ids]

    def _stand_in(self, number: int) -> str:
        return f"\ue002{self._nonce}{number}\ue003"
