"""Finished spans on their way to a collector: a bounded queue, and one thread that no request waits for.

A collector that is away, slow or refusing costs the spans that do not fit the queue meanwhile; all of them are counted.
OpenTelemetry's own batch processor does the same, but counts none.
"""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger("graphpod.front")

MOST_WAITING = 2048
"""Spans."""
BATCH = 64
"""Spans of one message at most: to encode them holds the interpreter for about 2 ms."""
GATHER_SECONDS = 1.0
"""So long a message that is not full waits for more spans. Full ones follow each other as fast as the collector takes
them."""

Counted = Callable[[str, int], None]
"""Counts so many spans by result: exported, failed or dropped."""


class SpanQueue(SpanProcessor):
    """Gives finished spans to `exporter`."""

    def __init__(
        self,
        exporter: SpanExporter,
        counted: Counted,
        most: int = MOST_WAITING,
        gather: float = GATHER_SECONDS,
        batch: int = BATCH,
    ) -> None:
        """At most `most` spans wait, `batch` of them are one message."""
        self._exporter, self._counted = exporter, counted
        self._gather, self._batch = gather, batch
        self._queue: queue.Queue[ReadableSpan] = queue.Queue(most)
        self._closing = threading.Event()
        self._wake = threading.Event()
        """A message is full, or the last spans are to leave."""
        self._works: bool | None = None
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing is done with a span that goes on."""

    def on_end(self, span: ReadableSpan) -> None:
        """Takes a span, or drops it where too many wait."""
        try:
            self._queue.put_nowait(span)
        except queue.Full:
            self._counted("dropped", 1)
        if self._queue.qsize() >= self._batch and not self._wake.is_set():
            self._wake.set()

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """Waits for nothing; whether nothing is left."""
        return self._queue.empty()

    def shutdown(self, seconds: float = 1.0) -> None:
        """Sends what is left, for so long at most."""
        self._closing.set()
        self._wake.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not (self._closing.is_set() and self._queue.empty()):
            if self._queue.qsize() < self._batch and not self._closing.is_set():
                self._wake.wait(self._gather)
                self._wake.clear()
            if batch := self._next():
                self._send(batch)

    def _next(self) -> list[ReadableSpan]:
        """The spans of one message; empty when none waits."""
        batch: list[ReadableSpan] = []
        with contextlib.suppress(queue.Empty):
            while len(batch) < self._batch:
                batch.append(self._queue.get_nowait())
        return batch

    def _send(self, batch: list[ReadableSpan]) -> None:
        try:
            works = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception:  # noqa: BLE001  whatever a collector answers must not end the thread
            works = False
        self._counted("exported" if works else "failed", len(batch))
        if works is not self._works:
            self._works = works
            if works:
                log.info("traces: the collector takes spans")
            else:
                log.warning("traces: the collector takes no spans; requests go on, graphpod_trace_spans_total counts")
