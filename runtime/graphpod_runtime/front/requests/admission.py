"""Who may come in: the requests that are open at one time, and the log-probabilities of prompts that they hold."""

import contextlib
from collections.abc import Iterator


class Full(Exception):
    """Too much is open; the message says what. Right request, wrong moment."""


class Admission:
    """Counts from the door to the end of the answer, so that what the tokenizer works on counts too.

    The engine takes as many requests as this lets in, so an admitted request never meets a
    full queue there: its stream's header may go out.
    """

    def __init__(self, max_named: int) -> None:
        """`max_named`: the tokens that log-probabilities of prompts name, of all open requests together."""
        self.open = 0
        """Prompts that are open."""
        self.named = 0
        """Tokens that log-probabilities of open prompts name."""
        self.tokens = 0
        """Tokens of open prompts; of a text that is being tokenized, an estimate."""
        self._max_named = max_named

    @contextlib.contextmanager
    def prompts(self, count: int, running: int, waiting: int) -> Iterator[None]:
        """Room for `count` prompts until the context ends, in an engine for so many. Raises Full."""
        if self.open + count > running + waiting:
            raise Full(f"The queue is full: {running} requests run and {waiting} wait")
        self.open += count
        try:
            yield
        finally:
            self.open -= count

    @contextlib.contextmanager
    def prompt_tokens(self, count: int, most: int) -> Iterator[None]:
        """Room for `count` tokens of prompts until the context ends, of `most` in all. Raises Full, but never for what
        is alone.
        """
        if self.tokens and self.tokens + count > most:
            raise Full(f"The queue is full: open prompts hold {self.tokens} tokens, of {most} in all")
        self.tokens += count
        try:
            yield
        finally:
            self.tokens -= count

    @contextlib.contextmanager
    def prompt_logprobs(self, named: int) -> Iterator[None]:
        """Room for log-probabilities that name `named` tokens until the context ends. Raises Full."""
        if self.named + named > self._max_named:
            raise Full(
                f"Open requests hold log-probabilities of {self.named} prompt tokens, of {self._max_named} in all"
            )
        self.named += named
        try:
            yield
        finally:
            self.named -= named
