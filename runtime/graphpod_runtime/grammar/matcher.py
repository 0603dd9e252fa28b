"""How far one answer has come in its grammar, and what may follow.

The masks of a pass are written while the device computes its logits, all at once. One that takes longer than the pass
would hold every request of it. So a grammar whose masks may take long is apart: its mask is written by a thread as soon
as its latest token is known, and its request joins the first pass that is planned once the mask is there.
"""

import ctypes
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from llguidance import LLExecutor, LLMatcher

from graphpod_runtime.grammar.reasoning_limit import ReasoningCount

SLOW_SECONDS = 0.005
"""A mask that takes longer may hold a pass."""
DOUBTED = 16
"""Masks in a row that must be faster before a slow grammar is apart no more."""


@dataclass(slots=True)
class Pace:
    """What the answers of one grammar have seen of its masks."""

    slow: bool = False
    """Whether an answer begins apart. It ends with an answer that has had DOUBTED fast masks in a row."""


class AnswerGrammar:
    """The state of one answer: of its grammar, of the limit of its reasoning, or of both. It moves on with each token
    that the host knows, and stays through a preemption.
    """

    __slots__ = ("_doubted", "_mask", "_pace", "_reasoning", "_threads", "matcher")

    def __init__(
        self,
        matcher: LLMatcher | None,
        threads: Executor | None = None,
        pace: Pace | None = None,
        reasoning: ReasoningCount | None = None,
    ) -> None:
        """At the beginning of the answer; `matcher` is not shared, None: any text will do. `pace` is shared with all
        answers of its grammar. `threads` write masks of a grammar that is apart; without them none ever is.
        """
        self.matcher = matcher
        self._reasoning = reasoning
        self._threads = threads
        self._pace = Pace() if pace is None else pace
        self._doubted = DOUBTED if self._pace.slow and threads is not None else 0
        self._mask: Future[bytes] | None = None

    def advance(self, token: int) -> None:
        """One token more; `problem` says whether it fits."""
        self._mask = None
        if self._reasoning is not None:
            self._reasoning.advance(token)
        if self.matcher is not None:
            self.matcher.consume_token(token)

    @property
    def complete(self) -> bool:
        """Whether nothing can follow but the end of the answer."""
        return self.matcher is not None and self.matcher.is_stopped() and not self.matcher.is_error()

    @property
    def problem(self) -> str | None:
        """Why no token can follow though the answer is not complete."""
        if self.matcher is None or not self.matcher.is_error():
            return None
        return self.matcher.get_error().partition("\n<")[0]

    @property
    def forced(self) -> int | None:
        """The one token that can follow, because the answer has had its reasoning."""
        forced = None if self._reasoning is None else self._reasoning.forced
        # The matcher is not asked without need: a thread may write its mask.
        return None if forced is None or self.problem is not None else forced

    @property
    def apart(self) -> bool:
        """Whether no pass is to wait for its mask."""
        return self._doubted > 0

    @property
    def writing(self) -> bool:
        """Whether a thread writes its mask: nothing else may be asked meanwhile."""
        return self._mask is not None and not self._mask.done()

    def prepare(self) -> None:
        """The answer goes on behind its latest token: of a grammar that is apart the mask is begun."""
        if self._threads is not None and self.matcher is not None and self.apart and self.forced is None:
            self._mask = self._threads.submit(self._timed)

    def doubt(self) -> None:
        """A pass has waited for its mask, or for that of another one."""
        if self._threads is not None:
            self._doubted = max(1, self._doubted)

    def prepared(self, row_bytes: int) -> bytes | None:
        """Its mask of so many bytes, if it is known or was begun; waits for it."""
        if (forced := self.forced) is not None:
            return (1 << forced).to_bytes(row_bytes, "little")
        if self.matcher is None:
            return b"\xff" * row_bytes
        return None if self._mask is None else self._mask.result()[:row_bytes].ljust(row_bytes, b"\0")

    def _timed(self) -> bytes:
        assert self.matcher is not None, "without a grammar a mask is known"
        began = time.perf_counter()
        mask = self.matcher.compute_bitmask()
        slow = time.perf_counter() - began > SLOW_SECONDS
        self._doubted = DOUBTED if slow else self._doubted - 1
        if slow or not self._doubted:
            self._pace.slow = slow
        return mask


class MaskWriter:
    """Writes the masks of several answers at once, without Python's lock, on as many threads."""

    def __init__(self, threads: int) -> None:
        """The threads begin with the first masks of several answers."""
        self._count = threads
        self._executor: LLExecutor | None = None

    def write(self, grammars: Sequence[AnswerGrammar], address: int, row_bytes: int) -> None:
        """Rows of `row_bytes` from `address` on, one for each grammar: bit i % 32 of word i // 32 says whether token i
        may follow. A row of a grammar with a problem allows the end token only; see `AnswerGrammar.problem`.
        """
        left: list[tuple[int, AnswerGrammar, LLMatcher]] = []
        for row, grammar in enumerate(grammars):
            if (mask := grammar.prepared(row_bytes)) is None:
                assert grammar.matcher is not None, "without a grammar a mask is known"
                left.append((row, grammar, grammar.matcher))
            else:
                ctypes.memmove(address + row * row_bytes, mask, row_bytes)
        if not left:
            return
        began = time.perf_counter()
        if len(left) == 1:
            ((row, _, matcher),) = left
            matcher.unsafe_compute_mask_ptr(address + row * row_bytes, row_bytes)
        else:
            if self._executor is None:
                self._executor = LLExecutor(self._count)
            rows = [(matcher, row) for row, _, matcher in left]
            self._executor.unsafe_compute_mask_ptr(rows, address, row_bytes, len(grammars))
        if time.perf_counter() - began > SLOW_SECONDS:
            for _, grammar, _ in left:
                grammar.doubt()
