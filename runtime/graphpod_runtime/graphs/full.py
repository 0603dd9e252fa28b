"""Capture of full graphs: one segment for the whole step, attention included."""

from collections.abc import Callable

from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.graphs.breaks import Forbidden, surrounded
from graphpod_runtime.graphs.capture_errors import CaptureSite, located
from graphpod_runtime.graphs.captured_graphs import FullGraph
from graphpod_runtime.graphs.segments.segment import Pool, capture


def capture_full(code: Callable[[Attend], None], site: CaptureSite, attend: Attend, pool: Pool) -> FullGraph:
    """Captures `code` at `site.size` rows with attention inside. CaptureFailed, CaptureOutOfMemory name the site."""
    try:
        with surrounded(Forbidden("a full graph")):
            calls = capture(pool.segment(), lambda: code(attend))
    except BaseException as error:
        raise located(error, f"{site}, segment 0") from error
    return FullGraph(site, calls)
