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


@dataclass(frozen=True, slots=True)
class LogprobRequest:
    """Which log-probabilities a request wants: natural logarithms of the model's own distribution, before temperature
    and top_p.

    `answer`: how many of the likeliest tokens to name beside each generated one; None: no log-probabilities of the
    answer. `prompt`: the same for the prompt's tokens from position `prompt_start` on; the first token of a prompt has
    none, because nothing precedes it. A start at the prompt's end asks for none.
    """

    answer: int | None = None
    prompt: int | None = None
    prompt_start: int = 0


@dataclass(frozen=True, slots=True)
class Logprob:
    """How likely one token was where it stands, and `top`: the likeliest tokens there with theirs, likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


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
    wants: LogprobRequest = field(default_factory=LogprobRequest)
    computed: int = 0
    """Tokens whose keys and values are written."""
    pages: list[int] = field(default_factory=list)
    """KV pages in order: token i lives in page i // page_size."""
    prompt_logprobs: list[Logprob] = field(default_factory=list)
    """Of the prompt's tokens from max(1, wants.prompt_start) on, as far as they are known. What a preemption makes
    compute again is not scored again."""

    @property
    def unscored(self) -> int:
        """Position of the first prompt token whose log-probability is wanted and not known; the prompt's length when
        there is none. Its row is the one before it: what a prefix cache may skip ends there."""
        if self.wants.prompt is None:
            return self.prompt_len
        return min(self.prompt_len, max(1, self.wants.prompt_start) + len(self.prompt_logprobs))


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
    def scored(self) -> range:
        """The prompt positions whose log-probabilities this chunk yields: each is read from the row before it.

        ValueError when such a row was skipped: what is not computed here cannot be scored.
        """
        first = self.sequence.unscored
        if first <= min(self.start, self.sequence.prompt_len - 1):
            raise ValueError(
                f"request {self.sequence.id}: log-probabilities are wanted from prompt position {first} on, and the "
                f"chunk starts at {self.start}; a prefix may be taken from the cache up to position {first - 1}"
            )
        return range(first, max(first, min(self.end + 1, self.sequence.prompt_len)))


@dataclass(frozen=True, slots=True)
class PrefillBatch:
    """Chunks of one pass; together at most prefill_chunk tokens."""

    chunks: tuple[Chunk, ...]

    @property
    def scores_prompt(self) -> bool:
        """Whether log-probabilities of prompt tokens are wanted of this pass: then more rows count than the last of
        each chunk."""
        return any(chunk.scored for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """Sequences that each run their last token; their pages already cover it."""

    sequences: tuple[Sequence, ...]


Batch = PrefillBatch | DecodeBatch


@dataclass(frozen=True, slots=True)
class Yielded:
    """What one pass gave, by chunk or sequence of its batch: `tokens`, -1 for a chunk that does not end its prompt, and
    log-probabilities where they were asked for, both empty when no sequence of the batch did.
    """

    tokens: list[int]
    answers: tuple[Logprob | None, ...] = ()
    """Of `tokens`."""
    prompts: tuple[tuple[Logprob, ...], ...] = ()
    """Of each chunk's `scored` positions."""
