"""A launched pass, and what it yields when it has landed.

The copies to the host are in line behind the pass, so `launch` returns while the device computes; `land` waits for an
event behind them and for nothing else.
"""

import time
from dataclasses import dataclass, replace
from itertools import compress

import torch
from torch import Tensor

from graphpod_policy import Phase, Policy
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.engine.forward.logprobs import Scores
from graphpod_runtime.engine.forward.seats import Seated
from graphpod_runtime.engine.schedule.sequence import Batch, DecodeBatch, Yielded
from graphpod_runtime.wire.messages import Logprob


class Moment:
    """A point in a device's line of work: an event on a GPU; elsewhere the work before it is done, and it is a time."""

    __slots__ = ("_event", "_seconds")

    def __init__(self, device: torch.device) -> None:
        self._seconds = time.perf_counter()
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)
            self._event.record()

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
class Scored:
    """Log-probabilities of rows, each with the entry of the batch that asked for it and for how many alternatives."""

    scores: Scores
    owners: tuple[int, ...]
    tops: tuple[int, ...]

    def copied(self) -> "Scored":
        """On its way to the host."""
        return replace(self, scores=Scores(*(copied(part) for part in self.scores)))

    def to_list(self) -> list[tuple[int, Logprob]]:
        """Entries and their log-probabilities, from the host; another of the batch may have asked for more."""
        return [
            (owner, one if len(one.top) == top else replace(one, top=one.top[:top]))
            for owner, top, one in zip(self.owners, self.tops, self.scores.to_list(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class LaunchedPass:
    """The pass of `batch`, whose `entries` are chunks or sequences."""

    batch: Batch
    policy: Policy
    """By which it ran; Disabled: eagerly."""
    ends_text: tuple[bool, ...]
    """Whether each entry yields a token."""
    tokens: Tensor
    """On the host, of those that do; -1 where the row's logits were not finite."""
    answers: Scored | None
    prompts: Scored | None
    seated: Seated | None
    """Where the device keeps the tokens."""
    began: Moment
    """In front of the pass: the device has ended all earlier ones."""
    landed: Moment
    """Behind the copies."""

    @classmethod
    def launched(
        cls,
        batch: Batch,
        policy: Policy,
        began: Moment,
        ends_text: tuple[bool, ...],
        tokens: Tensor,
        seated: Seated | None,
        answers: Scored | None,
        prompts: Scored | None = None,
    ) -> "LaunchedPass":
        """Of results on their device, which the next pass may overwrite."""
        parts = copied(tokens), answers and answers.copied(), prompts and prompts.copied()
        return cls(batch, policy, ends_text, *parts, seated, began, Moment(tokens.device))

    @property
    def phase(self) -> Phase:
        """Of its batch."""
        return Phase.Decode if isinstance(self.batch, DecodeBatch) else Phase.Prefill

    @property
    def device_seconds(self) -> float:
        """The device's time for the pass, once it has landed, from its first kernel to the last copy; the time in which
        the device waits for the host within the pass is part of it.
        """
        return self.landed.since(self.began)

    def land(self) -> Yielded:
        """Waits until the pass has run."""
        self.landed.wait()
        tokens = [-1] * len(self.ends_text)
        for entry, token in zip(compress(range(len(tokens)), self.ends_text), self.tokens.tolist(), strict=True):
            tokens[entry] = token
        answers: list[Logprob | None] = []
        if self.answers is not None:
            answers = [None] * len(tokens)
            for entry, answer in self.answers.to_list():
                answers[entry] = answer if tokens[entry] >= 0 else None
        prompts: list[list[Logprob]] = []
        if self.prompts is not None:
            prompts = [[] for _ in tokens]
            for entry, one in self.prompts.to_list():
                prompts[entry].append(one)
        return Yielded(tokens, tuple(answers), tuple(tuple(scored) for scored in prompts))


def copied(tensor: Tensor) -> Tensor:
    """`tensor` on the host, in memory of its own; from a GPU in pinned memory, and the host does not wait."""
    return tensor.to(HOST, non_blocking=True, copy=True)
