"""Functions that a recording takes as one call, whatever happens inside: compiled ones, for which a recording would
otherwise fall back to the code they were compiled from. On a GPU they are nothing special.
"""

from collections.abc import Callable
from typing import Any

import torch

from graphpod_runtime.graphs import segment


class Opaque:
    """`code`, called with tensors and None; it returns fresh tensors, or one it was given to overwrite.

    A trace sees `plain` instead, what `code` was compiled from.
    """

    def __init__(self, code: Callable[..., Any], plain: Callable[..., Any] | None = None) -> None:
        self._code, self._plain = code, plain or code

    def __call__(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling():
            return self._plain(*arguments)
        recording = segment.recording()
        return self._code(*arguments) if recording is None else recording.call(self._code, arguments)
