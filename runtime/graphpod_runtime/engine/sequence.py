"""One request's state, and the batches that one forward pass runs."""

from dataclasses import dataclass, field

LEAST = 1e-5
"""A temperature or top_p below it draws the likeliest token anyway, and single precision would divide by its 0."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. Temperature 0 is greedy; without a seed draws are not repeatable."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None


@dataclass(slots=True)
class Sequence:
    """A request in the engine. The loop writes it; the engine core only reads."""

    id: str
    tokens: list[int]
    """Prompt and generated tokens."""
    prompt_len: int
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    computed: int = 0
    """Tokens whose keys and values are written."""
    pages: list[int] = field(default_factory=list)
    """KV pages in order: token i lives in page i // page_size."""


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


@dataclass(frozen=True, slots=True)
class PrefillBatch:
    """Chunks of one pass; together at most prefill_chunk tokens."""

    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """Sequences that each run their last token; their pages already cover it."""

    sequences: tuple[Sequence, ...]


Batch = PrefillBatch | DecodeBatch
