"""A launched pass, and what it yields when it has landed.

The copies to the host are in line behind the pass, so `launch` returns while the device computes; `land` waits for an
event behind them and for nothing else. A pass whose rows have grammars, and any of a pipeline, is launched in two
parts: what computes its logits, then, once those or the tokens before are there, what chooses.
"""

import time
from collections.abc import Sequence as List
from dataclasses import dataclass
from itertools import compress

import torch
from torch import Tensor

from graphpod_policy import FallbackReason, Phase, Policy
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.engine.forward.pooled_rows import PooledRows
from graphpod_runtime.engine.forward.sampling.logprobs import Scores
from graphpod_runtime.engine.forward.sampling.processors import History
from graphpod_runtime.engine.forward.sampling.sampler import SamplingBatch
from graphpod_runtime.engine.forward.seats import Seated
from graphpod_runtime.engine.forward.token_runs import Runs
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.wire.messages import Logprob


class Moment:
    """A point in a device's line of work: an event on a GPU; elsewhere the work before it is done, and it is a time."""

    __slots__ = ("_event", "_seconds", "_stream")

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        """Now; `stream`: of a GPU. To ask torch for the current one takes longer than to record the event."""
        self._seconds, self._stream = time.perf_counter(), stream
        self._event: torch.cuda.Event | None = None
        if stream is not None:
            self._event = torch.cuda.Event(enable_timing=True)
            self._event.record(stream)

    def host_seconds(self) -> float:
        """Since then, by the host's clock."""
        return time.perf_counter() - self._seconds

    def later(self) -> "Moment":
        """Now, in the same line."""
        return Moment(self._stream)

    def wait(self) -> None:
        """Returns when the device has come here."""
        if self._event is not None:
            self._event.synchronize()

    def since(self, earlier: "Moment") -> float:
        """Seconds that the device took from `earlier` to here; both are past."""
        if self._event is None or earlier._event is None:
            return self._seconds - earlier._seconds
        return earlier._event.elapsed_time(self._event) / 1000


@dataclass(frozen=True, slots=True)
class Ran:
    """How a pass ran."""

    phase: Phase
    policy: Policy
    """By which it ran; Disabled: eagerly."""
    rows: int
    choice: int | FallbackReason
    """The size of its graph, or why it has none."""
    recompiled: bool
    """Whether an eager pass met code without a compilation."""
    code_runs: int
    """How often the model's own code ran in it."""
    began: Moment
    """In front of the pass, and of its draft steps: the device has ended all earlier ones."""
    launch_seconds: float

    @property
    def kind(self) -> tuple[Phase, Policy, int, int | FallbackReason, bool, int]:
        """All that is counted of it but its times."""
        return self.phase, self.policy, self.rows, self.choice, self.recompiled, self.code_runs


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What a pass computes before a token is chosen, on its device. Its entries are the chunks or sequences of its
    batch, its rows those of them that yield a token."""

    ends_text: tuple[bool, ...]
    """Whether each entry has a row."""
    entries: List[int]
    """The entry of each row."""
    members: SamplingBatch
    """How the rows choose."""
    logits: Tensor
    chosen: Tensor
    """The greedy token of each row."""
    positions: Tensor
    """Those of the tokens that the rows were computed from."""
    history: History | None
    """Of the rows, where any of them reads it."""
    given: List[int] | None
    """The token of each row that later passes go on from; None: the chosen one."""
    prompts: Scores | None = None
    pooled: PooledRows | None = None
    states: Tensor | None = None
    """Of each row, what a draft head reads."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The tokens of a pass, on its device, by row."""

    tokens: Tensor
    """NOT_FINITE or NOTHING_LEFT where there is none."""
    seated: Seated | Runs | None
    """Where the device keeps the tokens."""
    answers: Scores | None


class PassInFlight:
    """A pass whose results are on their way to the host."""

    def __init__(self, ran: Ran, forwarded: Forwarded) -> None:
        """What was `forwarded` stays until `choose`: in a pipeline other passes come before it."""
        self.ran = ran
        self.undecided: Forwarded | None = forwarded
        """None: its tokens are chosen."""

    def choose(self, chosen: Chosen) -> None:
        """The last part of the pass is launched; the next one may overwrite what it gave."""
        assert self.undecided is not None, "tokens are chosen once"
        forwarded, self.undecided = self.undecided, None
        self.seated = chosen.seated
        self.runs = chosen.seated.copied() if isinstance(chosen.seated, Runs) else None
        self._ends_text = forwarded.ends_text
        self.tokens = chosen.tokens.to(HOST, non_blocking=True, copy=True)
        """From a GPU in pinned memory; the host does not wait."""
        self._answers = chosen.answers and chosen.answers.copied()
        self._prompts = forwarded.prompts and forwarded.prompts.copied()
        self._pooled = forwarded.pooled and forwarded.pooled.copied()
        self._landed = self.ran.began.later()

    @property
    def device_seconds(self) -> float:
        """The device's time for the pass, once it has landed, from its first kernel to the last copy; the time in which
        the device waits for the host within the pass is part of it.
        """
        return self._landed.since(self.ran.began)

    def land(self) -> Yielded:
        """Waits until the pass has run."""
        self._landed.wait()
        tokens = [-1] * len(self._ends_text)
        for entry, token in zip(compress(range(len(tokens)), self._ends_text), self.tokens.tolist(), strict=True):
            tokens[entry] = token
        answers: list[Logprob | None] = []
        if self._answers is not None:
            answers = [None] * len(tokens)
            for entry, answer in self._answers.owned():
                answers[entry] = answer if tokens[entry] >= 0 else None
        if self.runs is not None:
            return self.runs.landed(answers)
        prompts: list[list[Logprob]] = []
        if self._prompts is not None:
            prompts = [[] for _ in tokens]
            for entry, one in self._prompts.owned():
                prompts[entry].append(one)
        pooled = () if self._pooled is None else tuple(self._pooled.landed())
        return Yielded(tokens, tuple(answers), tuple(tuple(scored) for scored in prompts), pooled)
