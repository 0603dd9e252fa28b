"""Which sequences run in the next pass: queues and pages, no device and no I/O.

A sequence waits, is prefilled in chunks, then decodes with all others until it ends. Prefill and decode are never mixed
in one pass. Prefill goes first, but while sequences decode there is at most one prefill pass, of at most prefill_chunk
tokens, between two decode passes: whatever arrives, a sequence that decodes gets a token in every two passes, until it
ends or is set back.

Pages are taken optimistically: a prompt's when it is admitted, one more each time decoding crosses a page. When none is
left the newest sequence is set back to the queue and computed again later, prompt and generated tokens alike. The
oldest is never set back, and `submit` refuses what the whole cache cannot hold, so some sequence always advances.

A row whose logits are not finite ends its sequence alone, with an error. Its pages are given back as not clean, and so
are those of a prompt that goes before any of its rows was looked at.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from graphpod_policy import EngineConfig
from graphpod_runtime.engine.schedule.sequence import Batch, Chunk, DecodeBatch, PrefillBatch, Sequence, Yielded
from graphpod_runtime.wire.messages import FinishReason, Logprob


class Allocator(Protocol):
    """The allocator of KV pages, `cache.pages.PageAllocator`."""

    capacity: int

    @property
    def available(self) -> int: ...
    def take(self, count: int) -> list[int]: ...
    def free(self, pages: list[int], *, clean: bool = True) -> None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_model_len`, `prefill_chunk` and `page_size` are tokens, `max_batch` and `max_queue` sequences."""

    max_model_len: int
    max_batch: int
    prefill_chunk: int
    page_size: int
    max_queue: int

    @classmethod
    def of(cls, config: EngineConfig, max_queue: int) -> "Limits":
        """Those of an engine with a queue of its own length."""
        return cls(config.max_model_len, config.max_batch, config.prefill_chunk, config.page_size, max_queue)


@dataclass(frozen=True, slots=True)
class Progress:
    """One new token of a sequence; `finish` is set when it was the last, `logprob` when it was asked for. An Error has
    no token and a `message`.
    """

    sequence: Sequence
    token: int
    finish: FinishReason | None
    logprob: Logprob | None = None
    message: str | None = None


class QueueFull(Exception):
    """maxBatch + maxQueue sequences are open already; try again later."""


class DoesNotFit(Exception):
    """The sequence is empty, too long for the model, or larger than the whole KV cache."""


class Scheduler:
    """`next` gives a batch, `advance` takes its tokens; both are called in turn, aborts and submits in between."""

    def __init__(self, pages: Allocator, limits: Limits, eos_ids: tuple[int, ...]) -> None:
        self.limits = limits
        self.preemptions = 0
        self.nonfinite = 0
        """Sequences that ended because their logits were not finite."""
        self._pages = pages
        self._eos_ids = frozenset(eos_ids)
        self._open: dict[str, Sequence] = {}
        self._waiting: deque[Sequence] = deque()
        self._prefilling: list[Sequence] = []
        self._decoding: list[Sequence] = []
        self._decode_is_due = False
        """The latest pass was prefill."""

    @property
    def busy(self) -> bool:
        """Whether any sequence is open."""
        return bool(self._open)

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Sequences that hold pages."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def usage(self) -> float:
        """Pages in use over all pages, 0 to 1."""
        return 1 - self._pages.available / self._pages.capacity

    def submit(self, sequence: Sequence) -> None:
        """Queues a sequence. QueueFull and DoesNotFit leave the scheduler as it was; ValueError for an open id."""
        if sequence.id in self._open:
            raise ValueError(f"request {sequence.id} is open already")
        limits = self.limits
        if len(self._open) >= limits.max_batch + limits.max_queue:
            raise QueueFull(f"{limits.max_batch} requests run and {limits.max_queue} wait already")
        if not 0 < sequence.prompt_len < limits.max_model_len or sequence.max_tokens < 1:
            raise DoesNotFit(
                f"a prompt of {sequence.prompt_len} tokens for {sequence.max_tokens} more: the model takes 1 to "
                f"{limits.max_model_len - 1} and must be asked for at least 1"
            )
        longest = min(sequence.prompt_len + sequence.max_tokens, limits.max_model_len)
        if self._pages_for(longest) > self._pages.capacity:
            raise DoesNotFit(
                f"{longest} tokens need {self._pages_for(longest)} KV pages, the whole cache has "
                f"{self._pages.capacity}; ask for fewer tokens or give the engine more KV memory"
            )
        self._open[sequence.id] = sequence
        self._waiting.append(sequence)

    def abort(self, id: str) -> bool:
        """Forgets a sequence and frees its pages, wherever it stands. False when it has ended already."""
        sequence = self._open.get(id)
        if sequence is None:
            return False
        clean = sequence not in self._prefilling
        for queue in (self._waiting, self._prefilling, self._decoding):
            if sequence in queue:
                queue.remove(sequence)
        self._close(sequence, clean=clean)
        return True

    def next(self) -> Batch | None:
        """The next pass, or None when nothing is open."""
        due, self._decode_is_due = self._decode_is_due, False
        if due and (batch := self._next_decode()) is not None:
            return batch
        if (prefill := self._next_prefill()) is not None:
            self._decode_is_due = True
            return prefill
        return self._next_decode()

    def advance(self, batch: Batch, yielded: Yielded) -> list[Progress]:
        """Takes what `batch` yielded, one token a chunk or sequence, and ends what is complete. A token below 0 where
        one was due means that the row's logits were not finite."""
        tokens = yielded.tokens
        logprobs = yielded.answers or (None,) * len(tokens)
        if isinstance(batch, DecodeBatch):
            ready = list(zip(batch.sequences, tokens, logprobs, strict=True))
            for sequence in batch.sequences:
                sequence.computed = len(sequence.tokens)
        else:
            ready = []
            for chunk, scored in zip(batch.chunks, yielded.prompts, strict=False):
                chunk.sequence.prompt_logprobs += scored
            for chunk, token, logprob in zip(batch.chunks, tokens, logprobs, strict=True):
                chunk.sequence.computed = chunk.end
                if chunk.last:
                    self._prefilling.remove(chunk.sequence)
                    self._decoding.append(chunk.sequence)
                    ready.append((chunk.sequence, token, logprob))
        return [self._append(*entry) for entry in ready]

    def _next_prefill(self) -> PrefillBatch | None:
        """Chunks of admitted prompts first, then of new ones as long as tokens, slots and pages last."""
        budget = self.limits.prefill_chunk
        chunks: list[Chunk] = []
        for sequence in self._prefilling:
            if budget:
                chunks.append(self._chunk(sequence, budget))
                budget -= chunks[-1].end - chunks[-1].start
        while budget and self._waiting and self.running < self.limits.max_batch:
            sequence = self._waiting[0]
            count = self._pages_for(len(sequence.tokens))
            # One spare page a running sequence: without it, what is admitted now is set back in the next pass.
            if count + self.running > self._pages.available:
                break
            self._waiting.popleft()
            sequence.pages = self._pages.take(count)
            self._prefilling.append(sequence)
            chunks.append(self._chunk(sequence, budget))
            budget -= chunks[-1].end - chunks[-1].start
        return PrefillBatch(tuple(chunks)) if chunks else None

    def _next_decode(self) -> DecodeBatch | None:
        """All decoding sequences, oldest first, each with a page for its last token."""
        index = 0
        while index < len(self._decoding):
            sequence = self._decoding[index]
            if self._pages_for(len(sequence.tokens)) > len(sequence.pages):
                if not self._pages.available:
                    # Whatever is in its prompt still was admitted after everything that decodes.
                    if self._prefilling:
                        self._preempt(self._prefilling.pop(), clean=False)
                    else:
                        self._preempt(self._decoding.pop())
                    continue
                sequence.pages += self._pages.take(1)
            index += 1
        return DecodeBatch(tuple(self._decoding)) if self._decoding else None

    def _preempt(self, sequence: Sequence, *, clean: bool = True) -> None:
        """Back to the head of the queue, without pages."""
        self.preemptions += 1
        self._release(sequence, clean=clean)
        sequence.computed = 0
        self._waiting.appendleft(sequence)

    def _append(self, sequence: Sequence, token: int, logprob: Logprob | None) -> Progress:
        if token < 0:
            self.nonfinite += 1
            self._decoding.remove(sequence)
            self._close(sequence, clean=False)
            return Progress(sequence, token, FinishReason.Error, message=_not_finite(sequence))
        sequence.tokens.append(token)
        finish = self._finish(sequence, token)
        if finish is not None:
            self._decoding.remove(sequence)
            self._close(sequence, clean=True)
        return Progress(sequence, token, finish, logprob)

    def _finish(self, sequence: Sequence, token: int) -> FinishReason | None:
        if token in sequence.stop_ids or (token in self._eos_ids and not sequence.ignore_eos):
            return FinishReason.Stop
        generated = len(sequence.tokens) - sequence.prompt_len
        if generated >= sequence.max_tokens or len(sequence.tokens) >= self.limits.max_model_len:
            return FinishReason.Length
        return None

    def _close(self, sequence: Sequence, *, clean: bool) -> None:
        del self._open[sequence.id]
        self._release(sequence, clean=clean)

    def _release(self, sequence: Sequence, *, clean: bool) -> None:
        self._pages.free(sequence.pages, clean=clean)
        sequence.pages = []

    def _chunk(self, sequence: Sequence, budget: int) -> Chunk:
        return Chunk(sequence, sequence.computed, min(len(sequence.tokens), sequence.computed + budget))

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.page_size)


def _not_finite(sequence: Sequence) -> str:
    return (
        f"the model gave no finite logits (NaN, or infinity) after {len(sequence.tokens)} tokens, so there is no next "
        "token; only this request ends. Check the weights, and whether spec.dtype is wide enough for this model"
    )
