"""kopf's settings; each differs from kopf's default for the reason that stands with it."""

from __future__ import annotations

from typing import Any

import kopf

PREFIX = "operator.graphpod.dev"
"""Of annotations, should a later handler make kopf write any."""
NO_FINALIZER = "no object has this finalizer"
"""kopf removes its finalizer from each object that has it, without our Lease and rights. A user may add any finalizer
that the API server takes; it takes no name with spaces.
"""
BACKOFFS = (0.5, 1.0, 2.0, 4.0, 4.0)
"""Seconds before each retry of a request; up to 21 would leave an API server that is back unseen."""


class NoDifferences(kopf.DiffBaseStorage):
    """kopf copies every object of every event to find out what changed in it since a handler succeeded. No handler of
    ours asks, so nothing is copied, compared or stored.
    """

    def build(self, **_: Any) -> Any:
        """What is compared."""
        return {}

    def fetch(self, **_: Any) -> None:
        """What was stored."""

    def store(self, **_: Any) -> None:
        """Store what was handled."""


def configure(chosen: kopf.OperatorSettings) -> None:
    """Set what kopf reads as it runs. `admission.managed` stays unset: certificate and caBundle are the chart's."""
    chosen.scanning.disabled = True  # our kinds are known: no right to list CRDs and namespaces is needed
    chosen.peering.standalone = True  # kopf's peering pauses both sides when they meet
    chosen.posting.enabled = False  # we write our own events, each once
    chosen.watching.server_timeout = 290  # s; a watch that froze ends anyway
    chosen.watching.client_timeout = 320
    chosen.watching.connect_timeout = 10
    chosen.watching.chunk_size = 200  # objects; keeps memory flat while listing
    chosen.queueing.idle_timeout = 0.05  # s; for so long the last event of an object is held after it was handled
    chosen.networking.request_timeout = 30  # s; 300 would hide an API server that is gone
    chosen.networking.error_backoffs = BACKOFFS
    chosen.queueing.worker_limit = None  # handlers only pass on; the limit on work is that of our workers
    chosen.persistence.finalizer = NO_FINALIZER
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=PREFIX)
    chosen.persistence.diffbase_storage = NoDifferences()
    chosen.process.ultimate_exiting_timeout = None  # never: it would come amid the run after one that failed


def shorten(chosen: kopf.OperatorSettings) -> bool:
    """Have kopf ask for pages of half as many objects. Whether they were not of one object already."""
    size = chosen.watching.chunk_size or 1
    chosen.watching.chunk_size = max(1, size // 2)
    return size > 1
