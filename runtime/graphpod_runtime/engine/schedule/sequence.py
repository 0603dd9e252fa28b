"""One request's state."""

from dataclasses import dataclass, field
from typing import NamedTuple

from graphpod_runtime.cache.moves import Awaited
from graphpod_runtime.engine.schedule.pooled import Pooled
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.grammar.matcher import AnswerGrammar
from graphpod_runtime.wire.messages import Logprob


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
    answer_ids: tuple[int, ...] = ()
    """The tokens to name with each generated one, instead of the likeliest; `answer` counts them."""


@dataclass(slots=True)
class Marks:
    """What is noted of a traced request: the times of its phases by time.monotonic(), and how many passes of the engine
    had landed then, on a graph and eagerly: those of prefill when it was admitted, of decode at its first token.
    """

    arrived: float = 0.0
    admitted: float = 0.0
    first: float = 0.0
    prefill: tuple[int, int] = (0, 0)
    decode: tuple[int, int] = (0, 0)


class Flight(NamedTuple):
    """A launched pass over `width` rows of a sequence, its latest token and drafts, that has not landed. No token
    beyond `room` gets keys and values by a draft."""

    width: int
    room: int

    def most(self, written: int) -> int:
        """Tokens that may have keys and values once it has landed, of a sequence that had `written` before."""
        return max(written + 1, min(written + self.width, self.room))


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
    includes_stop: bool = False
    """The token that stops it is part of the answer."""
    wants: LogprobRequest = field(default_factory=LogprobRequest)
    adapter: str = ""
    """LoRA adapter; empty: the model as it is."""
    priority: int = 0
    """Lower ones are admitted earlier."""
    overtaken: int = 0
    """Requests behind it that were admitted before it, because they need less."""
    salt: str = ""
    """Prefixes are shared among requests of one salt only."""
    grammar: AnswerGrammar | None = None
    """As far as its known tokens have come; None: the answer is any text, with as much reasoning as it likes."""
    marks: Marks | None = None
    """Of a traced request."""
    preemptions: int = 0
    """How often it was set back to the queue because pages ran out."""
    launched: int = 0
    """Tokens whose keys and values are written once every launched pass has run; with drafts in flight, at most."""
    computed: int = 0
    """Those that are written: their passes have landed."""
    decoded_at: int = 0
    """The number of the latest batch in which it decoded."""
    pages: list[int] = field(default_factory=list)
    """KV pages in order: token i lives in page i // page_size. Others may read those of a prefix."""
    page_losses: int = 0
    """How often pages were taken from it while it goes on."""
    drafted: int = 0
    """Tokens that a draft model has read once every launched pass has run, at least. It alone writes this and the next,
    but for a preemption."""
    drafted_plainly: bool = False
    """Whether the draft model may lack more than the latest token: it had no part in the latest pass of the sequence,
    or has not read all of its prompt."""
    flights: list[Flight] = field(default_factory=list)
    """Its passes in flight, of an engine with speculative decoding."""
    cached: int | None = None
    """Tokens that the prefix cache had when the sequence was admitted, the latest time before its first pass; None
    before."""
    cached_on_host: int = 0
    """Those of them that the host tier had."""
    begun: bool = False
    """Whether a pass of it was planned."""
    awaits: list[tuple[int, Awaited]] = field(default_factory=list)
    """Copies between the device and the host tier that may be on their way, each with the place in `pages` from which
    on none must be read or written before it has landed."""
    awaits_since: float | None = None
    """When it was admitted with pages that await copies; None once a pass of it is planned."""
    prompt_logprobs: list[Logprob] = field(default_factory=list)
    """Of the prompt's tokens from max(1, wants.prompt_start) on, as far as they are known. What a preemption makes
    compute again is not scored again."""

    pooled: Pooled | None = None
    """Of a request for an embedding: it ends with its prompt, and no client sees its one token."""

    def __post_init__(self) -> None:
        # Once, when the request is admitted: what a preemption makes compute again has the same text.
        self.sampling = self.sampling.seeded()

    @property
    def namespace(self) -> tuple[str, str]:
        """Requests of one namespace may share prefixes."""
        return self.adapter, self.salt

    @property
    def length(self) -> int:
        """Its tokens, one that is on its way from the device included; with drafts in flight, at most."""
        return max(len(self.tokens), self.launched + 1)

    @property
    def least_length(self) -> int:
        """The same, at least."""
        return len(self.tokens) + len(self.flights) if self.flights else self.length

    @property
    def in_flight(self) -> bool:
        """Whether a launched pass can still write to its pages."""
        return self.launched > self.computed

    @property
    def waits_for_mask(self) -> bool:
        """Whether its mask is not there, of a grammar that no pass is to wait for."""
        return self.grammar is not None and self.grammar.apart and (self.in_flight or self.grammar.writing)

    @property
    def unscored(self) -> int:
        """Position of the first prompt token whose log-probability is wanted and not known; the prompt's length when
        there is none. Its row is the one before it: what a prefix cache may skip ends there."""
        if self.wants.prompt is None:
            return self.prompt_len
        return min(self.prompt_len, max(1, self.wants.prompt_start) + len(self.prompt_logprobs))
