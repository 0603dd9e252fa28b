"""Requests whose prompts are to be computed: which of them are in the next prefill pass, and with how many tokens.

The oldest prompt has at least half of each prefill pass. The rest goes first to prompts that need less than it, so a
long one holds up no short one; then to the oldest, then to the others. Prompts in the queue take part if there are
slots and pages for them. A request may be overtaken in this way by `OVERTAKEN` others while it has room itself, and
never while it has none. So the head of the queue is admitted, once there is room for it, when the prompts on their way
and those that overtook it are computed, at the latest; every pass until then is full.

A prompt that begins like another one on its way waits for that one's pages where they spare at least half of its work.
It does so once, and others go ahead of it meanwhile.
"""

from collections.abc import Iterator
from typing import NamedTuple

from graphpod_runtime.engine.schedule.batch import Chunk
from graphpod_runtime.engine.schedule.kv_space import KvSpace
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.waiting import WaitingQueue

OVERTAKEN = 16
"""Requests that may be admitted before another one because they need less."""
LOOK_AHEAD = 32
"""Requests of the queue that are looked at for one that needs less."""


class Decoding(NamedTuple):
    """The `sequences` that decode, and the `rows` of those that go on after the token in flight."""

    sequences: int
    rows: int


class Prompts:
    """Those that wait in the queue, and those under way, which hold pages and have rows to launch; the oldest first."""

    def __init__(self, limits: Limits, kv: KvSpace) -> None:
        self.waiting = WaitingQueue()
        self.under_way: list[Sequence] = []
        self._limits, self._kv = limits, kv
        self._unread: list[Sequence] = []
        """Those that were admitted: no row of them was looked at."""
        self._behind: dict[Sequence, Sequence] = {}
        """Those in the queue that wait, or have waited, for the prompt of another one."""

    def remove(self, sequence: Sequence) -> None:
        """Forgets a sequence, wherever it stands."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence in self.under_way:
            self.under_way.remove(sequence)
        self._behind.pop(sequence, None)
        self.read(sequence)

    def read(self, sequence: Sequence) -> None:
        """A row of its prompt was looked at, or none will be."""
        if sequence in self._unread:
            self._unread.remove(sequence)

    def newest(self) -> Sequence:
        """Takes out the one that was admitted last."""
        sequence = self.under_way[-1]
        self.remove(sequence)
        return sequence

    def next_chunks(self, left: int, decoding: Decoding) -> list[Chunk]:
        """Chunks of prompts, old and new, as long as `left` tokens, slots and pages last."""
        chunks: list[Chunk] = []
        ready = [one for one in self.under_way if one.launched < self._kv.there(one)]
        if ready:
            oldest = self._to_launch(ready[0])
            kept = min(oldest, left - left // 2)
            left -= kept
            for sequence in self._shorter(oldest, decoding) if left else ():
                left -= self._add(chunks, sequence, left)
                if not left:
                    break
            left += kept
        served = {chunk.sequence for chunk in chunks}
        for sequence in ready:
            if left and sequence not in served:
                left -= self._add(chunks, sequence, left)
        while left and (admitted := self._admit(decoding)) is not None:
            left -= self._add(chunks, admitted, left)
        return chunks

    def chunks_that_wait(self, left: int) -> list[Chunk]:
        """Chunks of at most `left` tokens, whose pass waits on the device for copies of their pages."""
        chunks: list[Chunk] = []
        for sequence in self.under_way:
            if left:
                left -= self._add(chunks, sequence, left, waits=True)
        return chunks

    def _shorter(self, than: int, decoding: Decoding) -> Iterator[Sequence]:
        """Prompts that need fewer tokens `than` the oldest: those that were admitted, the shortest first, then more."""
        yield from sorted(
            (sequence for sequence in self.under_way if self._to_launch(sequence) < than), key=self._to_launch
        )
        while (admitted := self._admit(decoding, than)) is not None:
            yield admitted

    def _admit(self, decoding: Decoding, than: int | None = None) -> Sequence | None:
        """The next of the queue, with pages, that needs fewer tokens `than` that; None when there is none, or no room
        for the first of the queue.
        """
        spare = len(self.under_way) + decoding.sequences
        if len(self.under_way) + decoding.rows >= self._limits.max_batch:
            return None
        # What awaits its pages is work for later passes, and enough of it holds up no budget for tokens.
        later = sum(self._to_launch(sequence) for sequence in self.under_way if sequence.awaits)
        if later >= self._limits.prefill_chunk:
            return None
        first, passed = None, 0
        for sequence in self.waiting:
            if self._waits_for_prefix(sequence):
                continue
            if than is not None and self._kv.missing(sequence) >= than:
                first, passed = first or sequence, passed + 1
                # One spare page a running sequence: without it, what is admitted now is set back in the next pass.
                if passed == 1 and not (first.overtaken < OVERTAKEN and self._kv.has_room(first, spare=spare)):
                    return None
                if passed == LOOK_AHEAD:
                    return None
                continue
            if not self._kv.admit(sequence, spare=spare):
                return None
            if first is not None:
                first.overtaken += 1
            self.waiting.admit(sequence)
            self._behind.pop(sequence, None)
            self.under_way.append(sequence)
            self._unread.append(sequence)
            return sequence
        return None

    def _to_launch(self, sequence: Sequence) -> int:
        return len(sequence.tokens) - sequence.launched

    def _add(self, chunks: list[Chunk], sequence: Sequence, most: int, *, waits: bool = False) -> int:
        """Adds a chunk of `sequence` with at most so many tokens; how many it has. None of their pages awaits copies,
        unless its pass `waits` for them on the device."""
        end = min(len(sequence.tokens), sequence.launched + most)
        if not waits:
            end = min(end, self._kv.there(sequence))
        if end <= sequence.launched:
            return 0
        self._kv.begins(sequence)
        chunks.append(Chunk(sequence, sequence.launched, end))
        return end - sequence.launched

    def _waits_for_prefix(self, sequence: Sequence) -> bool:
        """Whether a prompt on its way computes at least half of what `sequence` needs, or files have some of it. It
        waits for one such prompt, and once for files."""
        if sequence not in self._behind:
            for other in self._unread:
                if self._kv.spares_half(sequence, other):
                    self._behind[sequence] = other
                    break
        return self._behind.get(sequence) in self._unread or self._kv.waits_for_files(sequence)
