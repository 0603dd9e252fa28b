"""Grammars are compiled once in the front, too, off its loop: a wrong one is refused before a stream begins."""

import asyncio
from pathlib import Path

from graphpod_runtime.front.requests.errors import ApiError, invalid, unavailable
from graphpod_runtime.grammar.bounds import GrammarInvalid
from graphpod_runtime.grammar.compiler import Compiler
from graphpod_runtime.grammar.vocabulary import GrammarsUnavailable, read_vocabulary
from graphpod_runtime.wire.messages import Grammar

SECONDS = 10.0
"""After which a request does not wait longer for its grammar."""


class GrammarCheck:
    """Of one server."""

    def __init__(self, folder: Path) -> None:
        """For the model in `folder`. Holds all threads for up to 0.7 s: call it before anything is served."""
        self._unavailable = ""
        """Why no grammar can be used."""
        try:
            vocabulary = read_vocabulary(folder)
        except GrammarsUnavailable as error:
            self._unavailable = str(error)
        else:
            self._compiler = Compiler(vocabulary, lambda seconds: None, lambda: None)

    async def refuse_unusable(self, grammar: Grammar, param: str) -> None:
        """ApiError 400 naming the field `param` for a grammar that is wrong, too large, or that no answer fits; 503
        where so many others are compiled that it cannot be its turn.
        """
        if self._unavailable:
            raise unusable(f"{param} is not supported for this model: {self._unavailable}", param)
        compiling = self._compiler.start(grammar)
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(compiling)), SECONDS)
        except GrammarInvalid as error:
            raise unusable(f"{param} cannot be used: {error}", param) from error
        except TimeoutError as error:
            if compiling.running():
                raise unusable(f"{param} takes more than {SECONDS:.0f} s to compile; simplify it", param) from error
            raise unavailable("Too many grammars are compiled. Send the request again.", "queue_full") from error


def unusable(message: str, param: str) -> ApiError:
    """400: the grammar is wrong or not supported."""
    return invalid(message, param=param, code="invalid_grammar")
