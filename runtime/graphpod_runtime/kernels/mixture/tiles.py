"""What a program of a mixture's products has, by how many rows its experts have on average.

Measured on an H100 with the shape of Qwen3-30B-A3B: 128 experts, 8 of them for a token, 768 wide. There 1, 8 and 32
tokens take 33, 153 and 352 µs a layer, which is the time of reading the matrices of the chosen experts at 2.3, 2.9 and
3.0 TB/s; 2048 tokens take 570 µs, of 400 for reading all of them once.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Tile(NamedTuple):
    """Rows, outputs, inputs of one step; matrices that are read together, steps under way, warps."""

    rows: int
    outputs: int
    inputs: int
    matrices: int
    stages: int
    warps: int

    @property
    def shared_memory(self) -> int:
        """Bytes that its steps take, of 16-bit numbers."""
        return 2 * self.inputs * (self.rows + self.matrices * self.outputs) * self.stages


WIDE: Mapping[int, Tile] = {
    1: Tile(16, 32, 128, 2, 4, 4),
    8: Tile(32, 64, 128, 2, 3, 4),
    24: Tile(64, 128, 64, 2, 4, 8),
    96: Tile(128, 128, 64, 2, 4, 8),
}
"""Of gate and up, by the rows of an expert from which on a tile is taken."""
DOWN: Mapping[int, Tile] = {
    1: Tile(16, 64, 128, 1, 4, 4),
    8: Tile(32, 64, 128, 1, 4, 4),
    24: Tile(64, 64, 64, 1, 3, 4),
    96: Tile(128, 128, 64, 1, 3, 8),
}
"""Likewise of down."""
LEAST_STAGES, LEAST_INPUTS = 2, 32
"""Of a tile that is made to fit."""


def tile(tiles: Mapping[int, Tile], pairs: int, experts: int, shared_memory: int) -> Tile:
    """The tile for `pairs` of a token and one of `experts`, made to fit into `shared_memory` bytes: fewer steps under
    way first, then fewer inputs of a step."""
    found = tiles[max(rows for rows in tiles if rows == 1 or rows * experts <= pairs)]
    while found.shared_memory > shared_memory and found.stages > LEAST_STAGES:
        found = found._replace(stages=found.stages - 1)
    while found.shared_memory > shared_memory and found.inputs > LEAST_INPUTS:
        found = found._replace(inputs=found.inputs // 2)
    return found
