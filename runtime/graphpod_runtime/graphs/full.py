"""Full graphs: one segment for the whole step, attention included."""

from collections.abc import Callable

from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.graphs.breaks import Forbidden, surrounded
from graphpod_runtime.graphs.capture_errors import CaptureSite, located
from graphpod_runtime.graphs.segments.segment import Pool, Segment, capture


class FullGraph:
    """One segment, for one size."""

    segments = 1

    def __init__(self, site: CaptureSite, segment: Segment) -> None:
        self.site = site
        self._segment = segment

    def replay(self, count: int) -> None:
        """Runs the step. Padded rows run too, on the scratch page, so the real `count` makes no difference."""
        self._segment.replay()


def capture_full(code: Callable[[Attend], None], site: CaptureSite, attend: Attend, pool: Pool) -> FullGraph:
    """Captures `code` at `site.size` rows with attention inside. CaptureFailed, CaptureOutOfMemory name the site."""
    segment = pool.segment()
    try:
        with surrounded(Forbidden("a full graph")):
            capture(segment, lambda: code(attend))
    except BaseException as error:
        raise located(error, f"{site}, segment 0") from error
    return FullGraph(site, segment)
