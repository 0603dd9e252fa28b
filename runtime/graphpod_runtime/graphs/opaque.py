"""Functions that a recording takes as one call, whatever happens inside: compiled ones, for which a recording would
otherwise fall back to the code they were compiled from. On a GPU they are nothing special.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from graphpod_runtime.graphs import segment

_uncompiled = [False]
"""Whether what functions were compiled from runs instead of them; the last one counts."""


@contextmanager
def uncompiled() -> Iterator[None]:
    """Within, every Opaque runs what it was compiled from."""
    _uncompiled.append(True)
    try:
        yield
    finally:
        _uncompiled.pop()


class Opaque:
    """`code`, called with tensors and None; it returns fresh tensors, or one it was given to overwrite.

    A trace sees `plain` instead, what `code` was compiled from; so does everybody within `uncompiled`.
    """

    def __init__(self, code: Callable[..., Any], plain: Callable[..., Any] | None = None) -> None:
        self._code, self._plain = code, plain or code

    def __call__(self, *arguments: Any) -> Any:
        if _uncompiled[-1] or torch.compiler.is_compiling():
            return self._plain(*arguments)
        recording = segment.recording()
        return self._code(*arguments) if recording is None else recording.call(self._code, arguments)
