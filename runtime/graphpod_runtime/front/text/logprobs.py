"""Log-probabilities as answers carry them: each token with its own text, and where it stands in the answer's text."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphpod_runtime.front.text.tokenizer import Tokenizer
from graphpod_runtime.wire.messages import Logprob


@dataclass(frozen=True, slots=True)
class TokenInText:
    """One token of an answer, or of a prompt that is echoed. `start` counts the characters of the text before it;
    `logprob` is None for the first token of a prompt, which nothing precedes.
    """

    id: int
    start: int
    logprob: Logprob | None


def prompt_in_text(
    tokenizer: Tokenizer, prompt: list[int], logprobs: Sequence[Logprob]
) -> tuple[str, tuple[TokenInText, ...]]:
    """A prompt's text, and its tokens where log-probabilities of them (of all but the first) are given."""
    if not logprobs:
        return tokenizer.decode(prompt), ()
    detokenizer, made, said = tokenizer.detokenizer(), list[str](), []
    length = 0
    for id, logprob in zip(prompt, (None, *logprobs), strict=True):
        said.append(TokenInText(id, length, logprob))
        made.append(detokenizer.feed([id]))
        length += len(made[-1])
    return "".join(made) + detokenizer.flush(), tuple(said)


@dataclass(slots=True)
class PendingLogprobs:
    """Tokens on their way into pieces of text: one goes with the piece that holds the end of its text, or more."""

    base: int = 0
    """Characters of a prompt that the answer repeats."""
    _queue: deque[TokenInText] = field(default_factory=deque)
    _made: int = 0
    """Characters that the detokeniser has made."""
    _given: int = 0
    """Characters that pieces have carried."""

    def token(self, logprob: Logprob, made: str) -> None:
        """A token that brought the characters `made`; none while a character is incomplete."""
        self._queue.append(TokenInText(logprob.token, self.base + self._made, logprob))
        self._made += len(made)

    def with_piece(self, text: str, *, last: bool = False) -> tuple[TokenInText, ...]:
        """What goes with a piece of `text`; with the last one all that is left."""
        self._given += len(text)
        said = []
        while self._queue and (last or self._queue[0].start < self.base + self._given):
            said.append(self._queue.popleft())
        return tuple(said)
