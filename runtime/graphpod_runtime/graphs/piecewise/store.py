"""Split graphs on disk, with compiled code: a start that finds its model's traces nothing and imports no compiler."""

import hashlib
import pickle
from pathlib import Path
from types import CodeType

import torch
from torch import nn

from graphpod_runtime.compiled.cache import machine
from graphpod_runtime.compiled.cache_folder import Entries, Unusable
from graphpod_runtime.graphs.piecewise.pieces import SplitGraph, members


class SplitGraphStore:
    """Entries of one model in `folder`. A graph is Python: like compiled code it is code that runs in the engine, and
    `compiled/cache_folder.py` says whose is used.
    """

    def __init__(self, folder: Path, device: torch.device, model: str) -> None:
        """`model` says what, besides code and weights' shapes, decides about a trace: sizes, switches, dtype."""
        self._entries, self._device, self._model = Entries(folder), device, model

    def found(self, body: nn.Module) -> SplitGraph | None:
        """What was kept of a body like this."""
        return self._entries.found(self._name(body), _loaded)

    def keep(self, body: nn.Module, graph: SplitGraph) -> None:
        """Keeps `graph` for the next start, where the folder can be written."""
        self._entries.keep(self._name(body), pickle.dumps(graph), ".pickle")

    def _name(self, body: nn.Module) -> str:
        parts = [*machine(self._device), self._model]
        for name, module in body.named_modules():
            # The engine's sources are in the machine's part; a class may be of another package.
            parts.append(f"{name} {type(module).__qualname__} {_said(type(module).forward.__code__)}")
        parts += [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in members(body).items()]
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
        return f"chain-{key}"


def _loaded(content: bytes) -> SplitGraph:
    try:
        graph = pickle.loads(content)
    except (pickle.UnpicklingError, EOFError, ImportError, AttributeError) as error:
        raise Unusable(f"it is of other code: {error}") from error
    if not isinstance(graph, SplitGraph):
        raise Unusable(f"it holds a {type(graph).__name__}, not a split graph")
    return graph


def _said(code: CodeType) -> str:
    """What a function does: its operations, names and constants, functions within it among these."""
    constants = [_said(constant) if isinstance(constant, CodeType) else repr(constant) for constant in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
