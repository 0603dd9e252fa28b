"""A smaller model drafts: it reads what the target reads, and writes the next tokens one after the other.

Its keys and values lie in a cache of its own, under the pages of the target's: page, slot and table of a token are the
same. So prefixes, preemption and the way back of pages know nothing of it. What it has not read it reads before it
drafts, a bounded part in front of a pass (`engine/schedule/draft_reading.py`).

A draft is the model's likeliest token. It is never trusted, so it may be computed over whatever its pages hold.
"""

from collections.abc import Iterator
from collections.abc import Sequence as List
from dataclasses import dataclass, field

from graphpod_policy import Phase
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.forward.drafting.steps_on_graphs import StepsOnGraphs
from graphpod_runtime.engine.forward.inputs import inputs_of_chunks
from graphpod_runtime.engine.schedule.batch import Chunk, PrefillBatch
from graphpod_runtime.engine.schedule.draft_reading import read_tokens
from graphpod_runtime.engine.schedule.drafting import DraftBatch
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.models.model import Model


@dataclass(slots=True)
class DraftModel(StepsOnGraphs):
    """`pages` is set when the engine is Ready; only `propose` is called before."""

    model: Model
    most_rows: int
    """Of a pass over texts."""
    page_size: int
    budget: int = 0
    """Rows that it reads behind a prefill pass, if that has fewer. Set when the engine is Ready."""
    pages: PageAllocator = field(init=False)

    def prefill(self, batch: PrefillBatch, inputs: Inputs) -> None:
        """Behind the target's pass over `inputs`, which are those of `batch`: reads the same, and before it what is
        missing of its prefixes, as far as that goes."""
        left, chunks = max(inputs.count, self.budget), list[Chunk]()
        for one in batch.chunks:
            start = self._read(one.sequence, one.start)
            end = min(one.end, start + left)
            left -= end - start
            chunks.append(Chunk(one.sequence, start, end))
            one.sequence.drafted_plainly = end < one.end
        if chunks == list(batch.chunks):
            self.read(inputs)
            self._note_all(chunks)
        else:
            self._read_all(chunks)

    def catch_up(self, batch: DraftBatch) -> None:
        """Before the pass of `batch`, which is in flight for the host: reads of each sequence what it says."""
        chunks: list[Chunk] = []
        for one, end, count in zip(batch.sequences, batch.ends, batch.reads, strict=True):
            if count:
                # A pass without drafts is its latest, so its length is certain. The latest token is the first step's.
                start = self._read(one, end - 1)
                chunks.append(Chunk(one, start, start + count))
        self._read_all(chunks)

    def drafts(self, batch: DraftBatch) -> None:
        """The draft steps of `batch` are launched: of who lacks nothing else they have read all but the latest
        token."""
        for one, end in zip(batch.sequences, batch.ends, strict=True):
            if not one.drafted_plainly or self._read(one, end - 1) == end - 1:
                # Of each earlier flight it has one token more at least.
                self._note(one, len(one.tokens) + len(one.flights) - 1)
                one.drafted_plainly = False

    def skipped(self, sequences: List[Sequence]) -> None:
        """A pass without drafts over `sequences`: of their latest tokens this model has read none."""
        for one in sequences:
            one.drafted_plainly = True

    def read(self, inputs: Inputs) -> None:
        """Keys and values of `inputs`; their results are not read."""
        self.attention.plan(inputs)
        self.model.body(self.model.embed(inputs.tokens), inputs.positions, self.attention.run)

    def _read(self, sequence: Sequence, end: int) -> int:
        return read_tokens(sequence, end, self.pages.drafted, self.page_size)

    def _note(self, sequence: Sequence, end: int) -> None:
        """The model has read the first `end` tokens once all that is launched has run."""
        first = min(sequence.drafted, end) // self.page_size
        self.pages.drafted.update(sequence.pages[first : end // self.page_size])
        sequence.drafted = max(sequence.drafted, end)

    def _read_all(self, chunks: List[Chunk]) -> None:
        for packed in self._packed(chunks):
            self.read(inputs_of_chunks(Phase.Prefill, packed, self.page_size, self.attention.cache.device))
        self._note_all(chunks)

    def _note_all(self, chunks: List[Chunk]) -> None:
        for chunk in chunks:
            self._note(chunk.sequence, chunk.end)

    def _packed(self, chunks: List[Chunk]) -> Iterator[tuple[Chunk, ...]]:
        """`chunks` in passes of at most `most_rows` rows."""
        packed: list[Chunk] = []
        left = self.most_rows
        for chunk in chunks:
            start = chunk.start
            while start < chunk.end:
                end = min(chunk.end, start + left)
                packed.append(Chunk(chunk.sequence, start, end))
                left -= end - start
                start = end
                if not left:
                    yield tuple(packed)
                    packed, left = [], self.most_rows
        if packed:
            yield tuple(packed)
