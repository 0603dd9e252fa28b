"""Which sequences run in the next pass: queues and pages, no device and no I/O.

A sequence waits, is prefilled in chunks, then decodes with all others until it ends. Prefill and decode are never mixed
in one pass. Prefill goes first, but while sequences decode there is at most one prefill pass, of at most
prefill_budget tokens, between two decode passes: whatever arrives, a sequence that decodes gets a token in every two
passes, until it ends or is set back. Which prompts are in a prefill pass: `prompts.py`.

Pages are taken optimistically: a prompt's when it is admitted, one more each time decoding crosses a page. When none is
left the newest sequence is set back to the queue and computed again later, from where the prefix cache ends. The oldest
is never set back, and `submit` refuses what the whole cache cannot hold, so some sequence always advances.

A batch is planned while the one before it, the flight, computes: `next` counts on a token for each of its rows, of
whose values are not known yet. So an end of a text is found one pass late, and what the pass in between gave the
sequence is dropped; an end by length is known before and launches nothing. Pages of a sequence that ends or is aborted
go back when the last pass that writes to them has landed. No sequence is set back while a pass is in flight: what it
lands may end sequences and give pages, so `next` waits for it.

A prompt whose pages come from the host tier, or are leaving for it, joins no pass that reaches these before they have,
as long as others decode or have chunks to run. Where nothing else can run, its pass is launched at once and waits on
the device. While sequences decode, copies are launched turn by turn. A prompt whose load fails goes back to the queue.

A grammar moves on with each token that lands, and ends its sequence when nothing can follow. One whose mask may take
long is apart: its sequence runs no pass ahead, and joins the first pass that is planned once its mask is written. So it
holds up itself alone.

A row whose logits are not finite, or to which a grammar leaves no token, ends its sequence alone, with an error. Its
pages are given back as not clean, and so are those of a prompt that goes before any of its rows was looked at.
"""

from collections.abc import Callable
from collections.abc import Sequence as List
from typing import NamedTuple

from graphpod_policy import SpeculativeMethod
from graphpod_runtime.cache.host_tier import HostTier
from graphpod_runtime.engine.schedule.batch import Batch, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.drafting import (
    DraftBatch,
    Drafting,
    DraftsYielded,
    launched,
)
from graphpod_runtime.engine.schedule.end_reasons import not_finite, nothing_left
from graphpod_runtime.engine.schedule.kv_space import Allocator, KvSpace
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.micro_batches import micro_batch
from graphpod_runtime.engine.schedule.prompts import Decoding, Prompts
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.yielded import NOT_FINITE, NOTHING_LEFT, Yielded
from graphpod_runtime.wire.messages import FinishReason, Logprob

Leave = Callable[[Sequence], None]
"""How the pages of a sequence go back: `finish` or `discard` of KvSpace."""


class Progress(NamedTuple):
    """One new token of a sequence; `finish` is set when it was the last, `logprob` when it was asked for. An Error has
    no token and a `message`. `complete`: the grammar is, and the token is text although `finish` is Stop.
    """

    sequence: Sequence
    token: int
    finish: FinishReason | None
    logprob: Logprob | None = None
    message: str | None = None
    complete: bool = False


class QueueFull(Exception):
    """maxBatch + maxQueue sequences are open already; try again later."""


class DoesNotFit(Exception):
    """The sequence is empty, too long for the model, or larger than the whole KV cache."""


class Scheduler:
    """`next` gives a batch, which is launched at once; `advance` takes its tokens, batch by batch in their order. At
    most one batch is in flight when `next` is called, or one for each stage of a pipeline but one. Aborts and submits
    come in between."""

    def __init__(
        self, pages: Allocator, limits: Limits, eos_ids: tuple[int, ...], host: HostTier | None = None
    ) -> None:
        self.limits = limits
        self.preemptions = 0
        self.nonfinite = 0
        """Sequences that ended because their logits were not finite."""
        self.drafting: Drafting | None = None
        if limits.speculation is not None:
            reads = limits.speculation.method is SpeculativeMethod.DraftModel
            self.drafting = Drafting(
                limits.speculation,
                limits.page_size,
                limits.max_model_len,
                pages.drafted if reads else None,
                limits.budget_while_decoding,
            )
        drafts = self.drafting is not None
        self.kv = KvSpace(pages, limits.page_size, caching=limits.prefix_cache, drafting=drafts, host=host)
        self._eos_ids = frozenset(eos_ids)
        self._open: dict[str, Sequence] = {}
        self._prompts = Prompts(limits, self.kv)
        self._decoding: list[Sequence] = []
        self._decode_is_due = False
        """The latest pass was prefill."""
        self._flights = 0
        """Batches that `advance` has not seen."""
        self._planned = 0
        """Batches so far."""
        self._leaving: dict[Sequence, Leave] = {}
        """Those that have ended in flight, and how their pages go back."""

    @property
    def busy(self) -> bool:
        """Whether any sequence is open."""
        return bool(self._open)

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        return len(self._prompts.waiting)

    @property
    def running(self) -> int:
        """Sequences that hold pages."""
        return len(self._prompts.under_way) + len(self._decoding)

    @property
    def usage(self) -> float:
        """Pages in use over all pages, 0 to 1. Prefixes without readers are not in use."""
        return 1 - self.kv.available / self.kv.capacity

    def refuse_full(self, elsewhere: int = 0) -> None:
        """QueueFull where no request more has room; so many wait `elsewhere`, before they are submitted."""
        limits = self.limits
        if len(self._open) + elsewhere >= limits.max_batch + limits.max_queue:
            raise QueueFull(f"{limits.max_batch} requests run and {limits.max_queue} wait already")

    def submit(self, sequence: Sequence) -> None:
        """Queues a sequence. QueueFull and DoesNotFit leave the scheduler as it was; ValueError for an open id."""
        if sequence.id in self._open:
            raise ValueError(f"request {sequence.id} is open already")
        limits = self.limits
        self.refuse_full()
        if not 0 < sequence.prompt_len < limits.max_model_len or sequence.max_tokens < 1:
            raise DoesNotFit(
                f"a prompt of {sequence.prompt_len} tokens for {sequence.max_tokens} more: the model takes 1 to "
                f"{limits.max_model_len - 1} and must be asked for at least 1"
            )
        longest = min(sequence.prompt_len + sequence.max_tokens, limits.max_model_len)
        if self._pages_for(longest) > self.kv.capacity:
            raise DoesNotFit(
                f"{longest} tokens need {self._pages_for(longest)} KV pages, the whole cache has "
                f"{self.kv.capacity}; request fewer tokens or give the engine more KV memory"
            )
        self._open[sequence.id] = sequence
        self._prompts.waiting.append(sequence)

    def abort(self, id: str) -> bool:
        """Forgets a sequence and frees its pages, wherever it stands. False when it has ended already."""
        sequence = self._open.get(id)
        if sequence is None:
            return False
        looked_at = sequence not in self._prompts.under_way
        if sequence in self._decoding:
            self._decoding.remove(sequence)
        self._prompts.remove(sequence)
        self._close(sequence, self.kv.finish if looked_at else self.kv.discard)
        return True

    def next(self) -> Batch | None:
        """The next pass, or None: it depends on what is in flight, else all that is open waits for masks or for pages
        from the host, or nothing is open."""
        batch: Batch | None
        self._settle()
        if self._decode_is_due:
            batch = self._next_decode() or (None if self._waits_for_pages() else self._next_prefill())
        else:
            batch = self._next_prefill() or self._next_decode()
        if batch is not None:
            self._decode_is_due = isinstance(batch, PrefillBatch)
            self._flights += 1
            self._planned += 1
            self._launch(batch)
        self.kv.launch_copies(everything=not self._decoding)
        return batch

    def _settle(self) -> bool:
        """Takes what copies of the host tier have brought. Whether prompts went back to the queue, because pages of
        theirs cannot come: they are computed."""
        if self.kv.settle():
            return False
        lost = [one for one in reversed(self._prompts.under_way) if any(move.lost for _, move in one.awaits)]
        for sequence in lost:
            self._prompts.remove(sequence)
            self._set_back(sequence, self.kv.discard)
        return bool(lost)

    def _launch(self, batch: Batch) -> None:
        """From now on `batch` is in flight."""
        if isinstance(batch, DecodeBatch):
            if isinstance(batch, DraftBatch):
                launched(batch)
                return
            for sequence, end in zip(batch.sequences, batch.ends, strict=True):
                sequence.launched, sequence.decoded_at = end, self._planned
            return
        for chunk in batch.chunks:
            chunk.sequence.launched = chunk.end
            if chunk.last:
                self._prompts.under_way.remove(chunk.sequence)
                self._decoding.append(chunk.sequence)

    def advance(self, batch: Batch, yielded: Yielded) -> list[Progress]:
        """Takes what `batch` yielded, one token a chunk or sequence, and ends what is complete. Where one was
        due, NOT_FINITE ends the sequence with an error, and so does NOTHING_LEFT. What has ended since `batch` was
        launched has no progress."""
        self._flights -= 1
        self._settle()
        tokens = yielded.tokens
        logprobs = yielded.answers or (None,) * len(tokens)
        if isinstance(batch, DecodeBatch):
            ends: List[int] = batch.ends
            if self.drafting is not None and isinstance(batch, DraftBatch) and isinstance(yielded, DraftsYielded):
                ends = self.drafting.landed(batch, yielded)
            rows = [(sequence, end, True) for sequence, end in zip(batch.sequences, ends, strict=True)]
        else:
            for chunk, scored in zip(batch.chunks, yielded.prompts, strict=False):
                chunk.sequence.prompt_logprobs += scored
            for entry, count, total in yielded.pooled:
                if (pool := batch.chunks[entry].sequence.pooled) is not None:
                    pool.add(count, total, batch.chunks[entry].end)
            rows = [(chunk.sequence, chunk.end, chunk.last) for chunk in batch.chunks]
        progress: list[Progress] = []
        entries = enumerate(zip(rows, tokens, logprobs, strict=True))
        for index, ((sequence, end, ends_prompt), token, logprob) in entries:
            sequence.computed = end
            if sequence in self._leaving:
                self._left(sequence, finite=not ends_prompt or token != NOT_FINITE)
            elif ends_prompt:
                progress.append(self._append(sequence, token, logprob))
                for further, its_logprob in yielded.behind(index) if isinstance(yielded, DraftsYielded) else ():
                    if progress[-1].finish is None:
                        progress.append(self._append(sequence, further, its_logprob))
                if isinstance(batch, PrefillBatch) and progress[-1].finish is None:
                    self._prompts.read(sequence)
                    self.kv.publish(sequence)
        if not self.busy:
            self.kv.launch_copies(everything=True)
        return progress

    def _next_prefill(self) -> PrefillBatch | None:
        """Chunks of prompts. None: there is none, or none that has its pages while others decode."""
        prompts, limits = self._prompts, self.limits
        if not prompts.under_way and not prompts.waiting:
            return None
        # A sequence that ends with the token in flight waits for no decode pass, and makes room for a row already.
        rows = sum(self._goes_on(sequence) for sequence in self._decoding)
        left = limits.budget_while_decoding if rows else limits.prefill_chunk
        chunks = prompts.next_chunks(left, Decoding(len(self._decoding), rows))
        while not chunks and not self._decoding:
            self.kv.launch_copies(everything=True)
            lost = self._settle()
            if chunks := prompts.chunks_that_wait(left):
                break
            if not lost:
                return None
            chunks = prompts.next_chunks(left, Decoding(0, 0))
        return PrefillBatch(tuple(chunks)) if chunks else None

    def _next_decode(self) -> DecodeBatch | None:
        """All sequences that go on decoding, oldest first, each with a page for its last token. None: no sequence
        decodes, those that do wait for masks, or pages are short until the flight or a load has landed."""
        index = 0
        while index < len(self._decoding):
            sequence = self._decoding[index]
            if self._short_of_pages(sequence):
                if not self.kv.available:
                    if self._flights or self.kv.loading:
                        return None
                    if self.drafting is None or not self.drafting.take_back(self._decoding, self.kv):
                        self._preempt()
                    continue
                self.kv.grow(sequence)
            index += 1
        going_on = tuple(one for one in self._decoding if self._goes_on(one) and not one.waits_for_mask)
        if self.limits.stages > 1:
            going_on = micro_batch(going_on, self.limits.stages, self._flights)
        if not going_on:
            return None
        if self.drafting is None:
            return DecodeBatch(going_on)
        return self.drafting.batch(going_on, self.kv, spare=self.running)

    def _waits_for_pages(self) -> bool:
        """Whether a sequence cannot decode before the flight or a load has landed."""
        if not (self._flights or self.kv.loading) or self.kv.available:
            return False
        return any(self._short_of_pages(sequence) for sequence in self._decoding)

    def _short_of_pages(self, sequence: Sequence) -> bool:
        return self._pages_for(sequence.length) > len(sequence.pages) and self._goes_on(sequence)

    def _goes_on(self, sequence: Sequence) -> bool:
        """Whether it decodes after the token that is in flight, as far as its length shows."""
        length = sequence.least_length
        return length - sequence.prompt_len < sequence.max_tokens and length < self.limits.max_model_len

    def _preempt(self) -> None:
        """The newest goes back to the head of the queue, without pages. Whatever is in its prompt still was admitted
        after everything that decodes.
        """
        self.preemptions += 1
        if self._prompts.under_way:
            sequence = self._prompts.newest()
            self._set_back(sequence, self.kv.discard)
        else:
            sequence = self._decoding.pop()
            self._set_back(sequence, self.kv.finish)
        sequence.preemptions += 1

    def _set_back(self, sequence: Sequence, leave: Leave) -> None:
        """`sequence`, which stands in no queue any more and has nothing in flight, is computed again later."""
        leave(sequence)
        sequence.launched = sequence.computed = sequence.drafted = 0
        sequence.drafted_plainly = False
        sequence.awaits, sequence.awaits_since = [], None
        sequence.page_losses += 1
        self._prompts.waiting.set_back(sequence)

    def _append(self, sequence: Sequence, token: int, logprob: Logprob | None) -> Progress:
        if token == NOTHING_LEFT:
            self._decoding.remove(sequence)
            self._close(sequence, self.kv.finish)
            return Progress(sequence, token, FinishReason.Error, message=nothing_left(sequence))
        if token < 0:
            self.nonfinite += 1
            self._decoding.remove(sequence)
            self.kv.condemn(sequence)
            self._close(sequence, self.kv.discard)
            return Progress(sequence, token, FinishReason.Error, message=not_finite(sequence))
        sequence.tokens.append(token)
        finish, complete = self._finish(sequence, token), False
        if finish is not FinishReason.Stop and sequence.grammar is not None:
            sequence.grammar.advance(token)
            if complete := sequence.grammar.complete:
                finish = FinishReason.Stop
            elif finish is None:
                sequence.grammar.prepare()
        if finish is not None:
            self._decoding.remove(sequence)
            self._close(sequence, self.kv.finish)
        return Progress(sequence, token, finish, logprob, complete=complete)

    def _finish(self, sequence: Sequence, token: int) -> FinishReason | None:
        if token in sequence.stop_ids or (token in self._eos_ids and not sequence.ignore_eos):
            return FinishReason.Stop
        generated = len(sequence.tokens) - sequence.prompt_len
        if generated >= sequence.max_tokens or len(sequence.tokens) >= self.limits.max_model_len:
            return FinishReason.Length
        return None

    def _close(self, sequence: Sequence, leave: Leave) -> None:
        """Ends `sequence`, which stands in no queue any more; its pages go back by `leave`, as soon as no pass in
        flight writes to them.
        """
        del self._open[sequence.id]
        self._prompts.read(sequence)
        if sequence.in_flight:
            self._leaving[sequence] = leave
        else:
            leave(sequence)

    def _left(self, sequence: Sequence, *, finite: bool) -> None:
        """A pass of a sequence that has ended has landed; its pages go back with the last."""
        if not finite:
            self.kv.condemn(sequence)
            self._leaving[sequence] = self.kv.discard
        if not sequence.in_flight:
            self._leaving.pop(sequence)(sequence)

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.page_size)
