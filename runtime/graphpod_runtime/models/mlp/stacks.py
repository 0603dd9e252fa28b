"""Experts of a checkpoint that are stacks, as tensors of each expert, which most checkpoints have."""

from collections.abc import Iterator

from torch import Tensor

GATE_UP, DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
"""Behind a layer's name: [experts, 2 · width, hidden], gate above up, and [experts, hidden, width]. Transformers keeps
them so in memory, and Granite in its checkpoints."""


def apart(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors that a model takes of `tensor`, called `name`: of a stack those of its experts. They are views:
    a mapped stack is read expert by expert."""
    plain = name.removesuffix(".weight")
    if not plain.endswith((GATE_UP, DOWN)) or tensor.dim() != 3:
        yield name, tensor
        return
    place, _, kind = plain.rpartition(".")
    for expert, matrix in enumerate(tensor):
        if kind == "down_proj":
            yield f"{place}.{expert}.down_proj.weight", matrix
            continue
        half = matrix.shape[0] // 2
        yield f"{place}.{expert}.gate_proj.weight", matrix[:half]
        yield f"{place}.{expert}.up_proj.weight", matrix[half:]
