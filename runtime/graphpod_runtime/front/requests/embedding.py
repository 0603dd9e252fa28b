"""From prompts to vectors: submits them in groups, waits for all, measures."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from graphpod_runtime.front.metrics.exporter import FrontMetrics
from graphpod_runtime.front.requests.errors import engine_error, unavailable
from graphpod_runtime.front.requests.open_requests import OpenRequests
from graphpod_runtime.wire.messages import Finished, FinishReason, Pooling, Submit


@dataclass(slots=True)
class Embedding:
    """One request's work, measured from `received`. `kind`: what asked for it, for the metrics."""

    engine: OpenRequests
    metrics: FrontMetrics
    prompts: Sequence[list[int]]
    pooling: Pooling
    kind: str
    at_once: int
    """Prompts that are with the engine at one time."""
    received: float
    salt: str = ""
    priority: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    """By which exemplars name the request."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))

    async def vectors(self) -> list[bytes]:
        """One for each prompt, float32, as the pool gives it. ApiError 503 when the queue is full, 500 when the engine
        fails. To cancel it aborts what is still running.
        """
        self.metrics.accepted(self.prompt_tokens)
        self.metrics.pooled(self.kind, len(self.prompts))
        vectors: list[bytes] = []
        try:
            for first in range(0, len(self.prompts), self.at_once):
                vectors += await self._group(self.prompts[first : first + self.at_once])
        finally:
            for _ in range(len(self.prompts) - len(vectors)):
                self.metrics.finished(FinishReason.Abort)
        return vectors

    async def _group(self, prompts: Sequence[list[int]]) -> list[bytes]:
        requests = [
            partial(
                Submit, prompt=prompt, max_tokens=1, ignore_eos=True, pooling=self.pooling, salt=self.salt,
                priority=self.priority,
            )
            for prompt in prompts
        ]  # fmt: skip
        found, running = [b""] * len(prompts), len(prompts)
        with self.engine.submit(requests) as stream:
            while running:
                for index, arrived in (await stream.next()).items():
                    found[index] = arrived.vector or found[index]
                    if arrived.finished is not None:
                        if arrived.finished.reason is not FinishReason.Stop:
                            raise _failure(arrived.finished)
                        running -= 1
        for prompt in prompts:
            self.metrics.finished(FinishReason.Stop)
            self.metrics.answered(time.perf_counter() - self.received, len(prompt), 0, 0.0, self.names)
        return found


def _failure(event: Finished) -> Exception:
    if event.reason is FinishReason.Rejected:
        return unavailable(f"The queue is full: {event.message}. Send the request again.", "queue_full")
    return engine_error(event.message or "the engine gave this request up")
