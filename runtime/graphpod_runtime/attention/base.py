"""The contract between the runner and an attention backend.

Planning happens outside any graph: before every pass, replayed or eager, the runner plans once for all layers. `run`
then computes one layer, inside a captured step or as a break between two segments; it takes keys and values from the
backend's bound cache and the rest from what was planned, never from arguments that a capture could have frozen.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from torch import Tensor

from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.graphs.break_arena import Staging


class AttentionBackend(Protocol):
    """An attention backend for one model, whose shape says what each layer attends to and how sharply. Not re-entrant:
    one pass at a time.
    """

    name: str
    """Whose kernels run, for people."""
    reads_whole_tables: bool
    """Whether a decode step may read every page of its rows' tables, those behind the row's length, too."""
    cache: KvCache
    """The bound one."""

    def bind(self, cache: KvCache) -> None:
        """Reads and writes `cache` from now on."""

    def reserve(self, rows: int, pages: int) -> Iterable[tuple[str, Tensor]]:
        """Makes the static buffers of captured steps, up to `rows` sequences of `pages` pages, by name: `slots`,
        `lengths` and `tables` as Inputs has them, whose rows a step may write itself, and others."""

    def plan(self, inputs: Inputs) -> None:
        """The next `run` calls are breaks or eager, over these rows."""

    def plan_step(self, inputs: Inputs, size: int) -> None:
        """The next `run` calls are of a decode step of `size` rows in a graph, or of its replay.

        The live rows of `inputs` go into static buffers; rows beyond them read and write the scratch page.
        """

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
        """Writes k and v into the cache, then attends: -> [tokens, heads · head_dim]. Is an Attend.

        The result is `out`, contiguous, where it is given; else a fresh tensor.
        """

    def over(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Callable[[int], Tensor]:
        """`run` for any layer over the same tensors: what all layers of a pass share is done once. Is an AttendInto."""

    def staging(self, slots: Tensor) -> Staging | None:
        """For prefill whose segments write the cache themselves: row i to slots[i] (static; -1: nowhere), so that a
        break has only attention left. None: breaks do both.
        """
