"""Grammars compiled in threads, and kept: the same one again costs nothing."""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from llguidance import LLMatcher, LLTokenizer

from graphpod_runtime.grammar.bounds import GrammarInvalid, refuse_long
from graphpod_runtime.grammar.compile import compiled
from graphpod_runtime.grammar.matcher import Pace
from graphpod_runtime.wire.messages import Grammar


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of a grammar: a matcher at the beginning of an answer, which is not to be changed, or why the grammar
    cannot be used. An exception in its place would grow by a traceback with each request that raises it.
    """

    matcher: LLMatcher | None
    problem: str = ""
    pace: Pace = field(default_factory=Pace)
    """Of the masks of all its answers."""

    def copy(self) -> LLMatcher:
        """A matcher of one answer; takes microseconds. GrammarInvalid for a grammar that cannot be used."""
        if self.matcher is None:
            raise GrammarInvalid(self.problem)
        return self.matcher.deep_copy()

    def refuse(self) -> None:
        """GrammarInvalid for a grammar that cannot be used."""
        if self.matcher is None:
            raise GrammarInvalid(self.problem)


Compiling = Future[Compiled]
THREADS = 2
STACK = 256 << 20
"""Bytes of a thread's stack, of which only what is used is there. llguidance recurses, and a stack that is too small
ends the process."""
COSTLY_SECONDS = 0.02
"""A grammar that takes longer to compile may have slow masks, too: no pass waits for the first of them either."""
KEPT = 128
"""Grammars. One takes up to some megabytes."""


class Compiler:
    """Of one process. A grammar is compiled once, however many requests wait for it."""

    def __init__(
        self,
        read: Callable[[], LLTokenizer],
        took: Callable[[float], None] = lambda seconds: None,
        hit: Callable[[], None] = lambda: None,
    ) -> None:
        """`read` gives the vocabulary, for the first grammar or for `prepare`. `took` hears of the seconds of each
        compilation, in its thread; `hit` of each that was spared."""
        self._read, self._took, self._hit = read, took, hit
        self._vocabulary: LLTokenizer | None = None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="grammars")
        self._kept: OrderedDict[bytes, Compiling] = OrderedDict()
        self._lock, self._reading = threading.Lock(), threading.Lock()

    def prepare(self) -> LLTokenizer:
        """The vocabulary. Other threads of Python stand still while it is read: call it before anything is served.
        GrammarsUnavailable for a tokenizer without one."""
        with self._reading:
            if self._vocabulary is None:
                self._vocabulary = self._read()
            return self._vocabulary

    def vocabulary(self) -> Future[LLTokenizer]:
        """The same, read in a thread unless it is there."""
        if self._vocabulary is None:
            return self._threads.submit(self.prepare)
        there: Future[LLTokenizer] = Future()
        there.set_result(self._vocabulary)
        return there

    def start(self, grammar: Grammar) -> Compiling:
        """Begins to compile, unless it has or will be."""
        try:
            refuse_long(grammar.text, grammar.kind)
            refuse_long(grammar.whitespace or "", "whitespace pattern")
        except GrammarInvalid as error:
            refused = Compiling()
            refused.set_result(Compiled(None, str(error)))
            return refused
        # A text may be long: only its digest is kept.
        key = hashlib.sha256(
            repr((grammar.kind, grammar.whitespace, grammar.text)).encode("utf-8", "surrogatepass")
        ).digest()
        with self._lock:
            future = self._kept.get(key)
            if future is not None:
                self._kept.move_to_end(key)
                self._hit()
                return future
            future = self._kept[key] = self._submit(grammar, key)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return future

    def _submit(self, grammar: Grammar, key: bytes) -> Compiling:
        """The pool starts its threads here, with the stack that is set now."""
        before = threading.stack_size(STACK)
        try:
            return self._threads.submit(self._compile, grammar, key)
        finally:
            threading.stack_size(before)

    def _compile(self, grammar: Grammar, key: bytes) -> Compiled:
        try:
            vocabulary, began = self.prepare(), time.perf_counter()
            try:
                matcher = compiled(vocabulary, grammar)
            finally:
                self._took(seconds := time.perf_counter() - began)
            return Compiled(matcher, pace=Pace(slow=seconds > COSTLY_SECONDS))
        except GrammarInvalid as error:
            return Compiled(None, str(error))
        except BaseException:
            # Of the process, not of the grammar: the next request tries again.
            with self._lock:
                self._kept.pop(key, None)
            raise
