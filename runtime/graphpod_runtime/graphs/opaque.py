"""Functions that a recording takes as one call, whatever happens inside: compiled ones, for which a recording would
otherwise fall back to the code they were compiled from. On a GPU they are nothing special.
"""

from collections.abc import Callable
from typing import Any

from graphpod_runtime.graphs import segment


class Opaque:
    """`code`, called with tensors and None; it returns fresh tensors and writes nothing else."""

    def __init__(self, code: Callable[..., Any]) -> None:
        self._code = code

    def __call__(self, *arguments: Any) -> Any:
        recording = segment.recording()
        return self._code(*arguments) if recording is None else recording.call(self._code, arguments)
