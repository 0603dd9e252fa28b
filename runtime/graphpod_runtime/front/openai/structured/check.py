"""Grammars are compiled once in the front, too, off its loop: a wrong one is refused before a stream begins."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from graphpod_runtime.front.requests.errors import ApiError, invalid, unavailable
from graphpod_runtime.grammar.bounds import GrammarInvalid
from graphpod_runtime.grammar.compiler import Compiler, Compiling
from graphpod_runtime.grammar.vocabulary import read_vocabulary
from graphpod_runtime.wire.messages import Grammar

SECONDS = 10.0
"""After which a request does not wait longer for its grammar."""


class GrammarCheck:
    """Of one server."""

    def __init__(self, folder: Path) -> None:
        """For the model in `folder`."""
        self.compiler = Compiler(partial(read_vocabulary, folder))

    async def refuse_unusable(self, grammar: Grammar, param: str) -> None:
        """ApiError 400 naming the field `param` for a grammar that is wrong, too large, or that no answer fits; 503
        where so many others are compiled that it cannot be its turn.
        """
        compiling = self.compiler.start(grammar)
        with _waiting(compiling, param):
            (await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(compiling)), SECONDS)).refuse()

    def refuse_unusable_at_once(self, grammar: Grammar, param: str) -> None:
        """The same, for callers without an event loop."""
        compiling = self.compiler.start(grammar)
        with _waiting(compiling, param):
            compiling.result(SECONDS).refuse()


@contextmanager
def in_words(param: str) -> Iterator[None]:
    """A GrammarInvalid is an ApiError 400 naming the field `param`."""
    try:
        yield
    except GrammarInvalid as error:
        raise unusable(f"{param} cannot be used: {error}", param) from error


@contextmanager
def _waiting(compiling: Compiling, param: str) -> Iterator[None]:
    try:
        with in_words(param):
            yield
    except TimeoutError as error:
        if compiling.running():
            raise unusable(f"{param} takes more than {SECONDS:.0f} s to compile; simplify it", param) from error
        raise unavailable("Too many grammars are compiled. Send the request again.", "queue_full") from error


def unusable(message: str, param: str) -> ApiError:
    """400: the grammar is wrong or not supported."""
    return invalid(message, param=param, code="invalid_grammar")
