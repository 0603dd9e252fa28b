"""The contract between the runner and an attention backend.

Planning happens outside any graph: before every pass, replayed or eager, the runner calls `plan` with the metadata
that this pass reads. `run` then computes one layer, inside a captured step or as a break between two segments; it
takes keys and values from the backend's bound cache and lengths from the planned metadata, never from arguments
that a capture could have frozen.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from graphpod_runtime.cache.kv import KvCache


@dataclass(frozen=True, slots=True)
class Metadata:
    """Where the rows of one pass live. All int64.

    slots [tokens]: page · page_size + offset of each row's key and value. tables [sequences, pages]: the pages of
    each sequence in order. lengths [sequences]: tokens each sequence can attend to, this pass included.
    starts [sequences + 1]: sequence i owns rows starts[i] to starts[i + 1]; they are its last tokens.
    A pass with as many sequences as rows is a decode pass: one row each. On a GPU the lengths and starts of a prefill
    are on the host, where its break reads them; all else is on the device.
    """

    slots: Tensor
    tables: Tensor
    lengths: Tensor
    starts: Tensor


class Backend(Protocol):
    """An attention backend. Not re-entrant: one pass at a time."""

    def bind(self, cache: KvCache) -> None:
        """Reads and writes `cache` from now on."""

    def plan(self, metadata: Metadata) -> None:
        """The next `run` calls are of a pass over these rows."""

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Writes k and v into the cache, then attends: -> [tokens, heads · head_dim]. Is an Attend."""
