"""What one forward pass runs."""

from dataclasses import dataclass

from graphpod_runtime.engine.schedule.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens [start, end) of a sequence, to run in one prefill pass."""

    sequence: Sequence
    start: int
    end: int

    @property
    def last(self) -> bool:
        """Whether this chunk ends the prompt, so that it yields a token."""
        return self.end == len(self.sequence.tokens)

    @property
    def pooled(self) -> range:
        """The prompt positions whose rows belong to an embedding."""
        pool = self.sequence.pooled
        return range(0) if pool is None else pool.rows(self.start, self.end, self.sequence.prompt_len)

    @property
    def scored(self) -> range:
        """The prompt positions whose log-probabilities this chunk yields: each is read from the row before it.

        ValueError when such a row was skipped: what is not computed here cannot be scored.
        """
        sequence, first = self.sequence, self.sequence.unscored
        if first <= min(sequence.computed, sequence.prompt_len - 1):
            raise ValueError(
                f"request {sequence.id}: log-probabilities are wanted from prompt position {first} on, and the first "
                f"{sequence.computed} tokens are there; a prefix may be taken from the cache up to position {first - 1}"
            )
        # Positions up to the start are those of a pass in flight.
        first = max(first, self.start + 1)
        return range(first, max(first, min(self.end + 1, sequence.prompt_len)))


@dataclass(frozen=True, slots=True)
class PrefillBatch:
    """Chunks of one pass; together at most prefill_chunk tokens."""

    chunks: tuple[Chunk, ...]

    @property
    def scores_prompt(self) -> bool:
        """Whether log-probabilities of prompt tokens are wanted of this pass: then more rows count than the last of
        each chunk."""
        return any(chunk.sequence.wants.prompt is not None and chunk.scored for chunk in self.chunks)

    @property
    def pools(self) -> bool:
        """Whether a chunk may give rows to an embedding."""
        return any(chunk.sequence.pooled is not None for chunk in self.chunks)

    @property
    def reads_all_rows(self) -> bool:
        """Whether more rows count than the last of each chunk, for log-probabilities or for the mean of rows."""
        return self.scores_prompt or (self.pools and any(len(chunk.pooled) > 1 for chunk in self.chunks))


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """Sequences that each run their last token, which may be on its way from the device; their pages already cover it.
    `ends`: the tokens of each, that one included; left out, their lengths now.
    """

    sequences: tuple[Sequence, ...]
    ends: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.ends:
            object.__setattr__(self, "ends", tuple(sequence.length for sequence in self.sequences))


Batch = PrefillBatch | DecodeBatch
