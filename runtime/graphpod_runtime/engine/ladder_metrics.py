"""What forward passes ask of a ladder: rows before padding, and replays and padding by size.

`graphpod advise` reads these series, and the operator for `status.graph.advice`.

Series are made once, for every captured size, so that a rate has its first sample; a pass then costs a lookup and three
additions.
"""

from collections.abc import Callable, Mapping

from graphpod_policy import Backend, FallbackReason, Phase
from graphpod_runtime.engine.forward.graph_choice import Ladder
from graphpod_runtime.wire.counters import Counters


class LadderMetrics:
    """Counts the passes of a started engine by the ladders of its phases."""

    def __init__(self, counters: Counters, ladders: Mapping[Phase, Ladder], backend: Backend) -> None:
        self._rows: dict[Phase, Callable[[float, int], None]] = {}
        self._sizes: dict[tuple[Phase, int], tuple[Callable[[float], None], Callable[[float], None]]] = {}
        for phase, ladder in ladders.items():
            self._rows[phase] = counters.observer("graphpod_graph_requested_rows", phase=phase, backend=backend)
            for size in ladder.captured:
                labels = {"phase": phase, "policy": ladder.policy, "backend": backend, "size": str(size)}
                self._sizes[phase, size] = (
                    counters.adder("graphpod_graph_size_replays_total", **labels),
                    counters.adder("graphpod_graph_size_padding_tokens_total", **labels),
                )

    def dispatched(self, phase: Phase, rows: int, choice: int | FallbackReason) -> None:
        """Take in the answer of `dispatch` to a pass of so many rows."""
        if isinstance(choice, FallbackReason):
            # the one reason of passes that another ladder with the same largest size could replay
            if choice is FallbackReason.PaddingGate:
                self._rows[phase](rows, 1)
            return
        self._rows[phase](rows, 1)
        replays, padding = self._sizes[phase, choice]
        replays(1)
        padding(choice - rows)
