"""How far one answer has come in its grammar."""

from collections.abc import Sequence

from llguidance import LLExecutor, LLMatcher


class AnswerGrammar:
    """The state of one answer. It moves on with each token that the host knows, and stays through a preemption."""

    __slots__ = ("matcher",)

    def __init__(self, matcher: LLMatcher) -> None:
        """At the beginning of the answer; `matcher` is not shared."""
        self.matcher = matcher

    def advance(self, token: int) -> None:
        """One token more; `problem` says whether it fits."""
        self.matcher.consume_token(token)

    @property
    def complete(self) -> bool:
        """Whether nothing can follow but the end of the answer."""
        return self.matcher.is_stopped() and not self.matcher.is_error()

    @property
    def problem(self) -> str | None:
        """Why no token can follow though the answer is not complete."""
        return self.matcher.get_error().partition("\n<")[0] if self.matcher.is_error() else None


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
        if len(grammars) == 1:
            grammars[0].matcher.unsafe_compute_mask_ptr(address, row_bytes)
            return
        if self._executor is None:
            self._executor = LLExecutor(self._count)
        rows = [(grammar.matcher, row) for row, grammar in enumerate(grammars)]
        self._executor.unsafe_compute_mask_ptr(rows, address, row_bytes, len(rows))
