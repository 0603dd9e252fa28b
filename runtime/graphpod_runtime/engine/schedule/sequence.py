"""One request's state, and the batches that one forward pass runs."""

import math
import secrets
from dataclasses import dataclass, field, replace

from graphpod_runtime.wire.messages import Logprob

STEEPEST = 1e30
"""The largest inverse temperature, and the inverse of the smallest one: single precision holds both."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. The filters apply after the temperature, in this order: top_k likeliest tokens
    (0: all), the likeliest ones that together have `top_p` of the mass (1: all), those with at least `min_p` of the
    likeliest one's probability (0: all).
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    """64 bits. A Sequence without one draws one at random."""
    top_k: int = 0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is chosen, the first of equal ones."""
        return self.temperature == 0 or self.top_k == 1

    @property
    def steepness(self) -> float:
        """1 / temperature, within what single precision can hold."""
        return min(STEEPEST, 1 / max(self.temperature, 1 / STEEPEST))

    @property
    def farthest(self) -> float:
        """How far below the likeliest token's log-probability min_p cuts: 0 or more, and never -0, whose bits are not
        in the order of floats."""
        return abs(math.log(self.min_p)) if self.min_p > 0 else math.inf

    def seeded(self) -> "Sampling":
        """The same with a seed, a random one where it has none."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(63))


@dataclass(frozen=True, slots=True)
class LogprobRequest:
    """Which log-probabilities a request wants: natural logarithms of the model's own distribution, before temperature
    and top_p.

    `answer`: how many of the likeliest tokens to name with each generated one; None: no log-probabilities of the
    answer. `prompt`: the same for the prompt's tokens from position `prompt_start` on; the first token of a prompt has
    none, because nothing precedes it. A start at the prompt's end asks for none.
    """

    answer: int | None = None
    prompt: int | None = None
    prompt_start: int = 0


@dataclass(slots=True, eq=False)
class Sequence:
    """A request in the engine, equal to itself only: an id may be open again while its former sequence leaves. The loop
    writes it; the engine core only reads.
    """

    id: str
    tokens: list[int]
    """Prompt and generated tokens."""
    prompt_len: int
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    wants: LogprobRequest = field(default_factory=LogprobRequest)
    adapter: str = ""
    """LoRA adapter; empty: the model as it is."""
    priority: int = 0
    """Lower ones are admitted earlier."""
    overtaken: int = 0
    """Requests behind it that were admitted before it, because they need less."""
    salt: str = ""
    """Prefixes are shared among requests of one salt only."""
    launched: int = 0
    """Tokens whose keys and values are written once every launched pass has run."""
    computed: int = 0
    """Those that are written: their passes have landed."""
    pages: list[int] = field(default_factory=list)
    """KV pages in order: token i lives in page i // page_size. Others may read those of a prefix."""
    cached: int | None = None
    """Tokens that the prefix cache had when the sequence was first admitted; None before."""
    prompt_logprobs: list[Logprob] = field(default_factory=list)
    """Of the prompt's tokens from max(1, wants.prompt_start) on, as far as they are known. What a preemption makes
    compute again is not scored again."""

    def __post_init__(self) -> None:
        # Once, when the request is admitted: what a preemption makes compute again has the same text.
        self.sampling = self.sampling.seeded()

    @property
    def namespace(self) -> tuple[str, str]:
        """Requests of one namespace may share prefixes."""
        return self.adapter, self.salt

    @property
    def length(self) -> int:
        """Its tokens, one that is on its way from the device included."""
        return max(len(self.tokens), self.launched + 1)

    @property
    def in_flight(self) -> bool:
        """Whether a launched pass can still write to its pages."""
        return self.launched > self.computed

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
        return any(chunk.scored for chunk in self.chunks)


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
