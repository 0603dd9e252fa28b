"""Requests whose answers have grammars, or limits of their reasoning, wait here until those are compiled. No pass waits
with them.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from llguidance import LLTokenizer

from graphpod_runtime.grammar.compiler import Compiler, Compiling
from graphpod_runtime.grammar.matcher import AnswerGrammar
from graphpod_runtime.grammar.reasoning_limit import ReasoningCount
from graphpod_runtime.grammar.vocabulary import read_vocabulary
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.messages import Finished, FinishReason, Submit

MASK_THREADS = 2
"""That write the masks which no pass waits for."""


class Waiting(NamedTuple):
    """A request that waits, since a time of time.monotonic()."""

    command: Submit
    vocabulary: Future[LLTokenizer] | None
    """For a limit of its reasoning; None: it has none."""
    compiling: Compiling | None
    """None: it has no grammar."""
    since: float

    @property
    def over(self) -> bool:
        """Whether nothing is to be waited for."""
        return all(future is None or future.done() for future in (self.vocabulary, self.compiling))


class Grammars:
    """Those of one loop; the scheduler does not know of its requests yet."""

    def __init__(self, folder: Path, vocabulary: int, eos_ids: tuple[int, ...], counters: Counters) -> None:
        """For the model in `folder`, with so many token ids."""
        self.compiler = Compiler(
            partial(read_vocabulary, folder, vocabulary, eos_ids),
            counters.observer("graphpod_grammar_compile_duration_seconds"),
            counters.adder("graphpod_grammar_cache_hits_total"),
        )
        self._waiting: dict[str, Waiting] = {}
        self._threads = ThreadPoolExecutor(MASK_THREADS, thread_name_prefix="masks")

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def wait(self, command: Submit) -> None:
        """The request waits for its grammar, and for the vocabulary if its reasoning has a limit."""
        vocabulary = None if command.reasoning is None else self.compiler.vocabulary()
        compiling = None if command.grammar is None else self.compiler.start(command.grammar)
        self._waiting[command.id] = Waiting(command, vocabulary, compiling, time.monotonic())

    def abort(self, id: str) -> bool:
        """Forgets a request. False when it does not wait."""
        return self._waiting.pop(id, None) is not None

    def compiled(self) -> list[tuple[Waiting, AnswerGrammar] | Finished]:
        """The requests whose grammars are there since the last call, each with its own; the end of those whose cannot
        be used."""
        found: list[tuple[Waiting, AnswerGrammar] | Finished] = []
        for id, waiting in list(self._waiting.items()):
            if waiting.over:
                del self._waiting[id]
                try:
                    found.append((waiting, self._answer(waiting)))
                except Exception as error:  # noqa: BLE001  whatever it is, it is the end of this request alone
                    found.append(Finished(id, FinishReason.Error, f"the answer's grammar cannot be used: {error}"))
        return found

    def _answer(self, waiting: Waiting) -> AnswerGrammar:
        """GrammarInvalid for a grammar that cannot be used."""
        compiled = None if waiting.compiling is None else waiting.compiling.result()
        limit, vocabulary = waiting.command.reasoning, waiting.vocabulary
        return AnswerGrammar(
            None if compiled is None else compiled.copy(),
            self._threads,
            None if compiled is None else compiled.pace,
            None if limit is None or vocabulary is None else ReasoningCount(limit, vocabulary.result()),
        )
