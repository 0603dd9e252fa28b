"""How much of one answer may be reasoning: after so many tokens of it, what closes it is all that can follow.

It looks at the bytes of tokens, because a tag may be cut into tokens in several ways.
"""

from llguidance import LLTokenizer

from graphpod_runtime.wire.messages import ReasoningLimit

BLANKS = b" \t\r\n"


class ReasoningCount:
    """The state of one answer, whose tokens it sees in order."""

    __slots__ = ("_closing", "_closing_left", "_counted", "_ends", "_head", "_inside", "_limit", "_over", "_vocabulary")

    def __init__(self, limit: ReasoningLimit, vocabulary: LLTokenizer) -> None:
        """At the beginning of the answer."""
        self._limit, self._vocabulary = limit, vocabulary
        self._closing: list[int] = vocabulary.tokenize_str(limit.closes, parse_special=True)
        self._ends = tuple(mark.encode() for mark in (limit.closes, *limit.ends))
        self._inside = limit.thinks
        self._over = False
        self._counted = 0
        self._head = b""
        """Inside: the latest bytes, as many as may begin an end. Outside: all bytes."""
        self._closing_left: list[int] = self._closing if self._inside and limit.tokens == 0 else []

    @property
    def forced(self) -> int | None:
        """The one token that can follow; None: any."""
        return self._closing_left[0] if self._closing_left else None

    def advance(self, token: int) -> None:
        """One token more."""
        if self._over:
            return
        if self._closing_left:
            self._closing_left = self._closing_left[1:]
            self._over = not self._closing_left
            return
        self._head += self._vocabulary.decode_bytes([token])
        if not self._inside:
            self._open()
            return
        self._counted += 1
        if any(end in self._head for end in self._ends):
            self._over = True
            return
        self._head = self._head[-max(map(len, self._ends)) :]
        self._force()

    def _open(self) -> None:
        """Looks whether the answer begins with reasoning."""
        opens, head = self._limit.opens.encode(), self._head.lstrip(BLANKS)
        if head.startswith(opens):
            self._inside, self._head = True, head[len(opens) :]
            self._force()
        elif not opens.startswith(head):
            self._over = True

    def _force(self) -> None:
        if self._counted >= self._limit.tokens:
            self._closing_left = self._closing
