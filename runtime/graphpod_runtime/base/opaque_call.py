"""Functions that a recording takes as one call, whatever happens inside: compiled ones, for which a recording would
otherwise fall back to the code they were compiled from. On a GPU they are nothing special.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch


class Recording(Protocol):
    """A recording of operators, into which a call can be noted as one."""

    def call(self, code: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Runs `code(*arguments)` as if nothing were recorded, and notes it."""


_recording: Recording | None = None


def record(into: Recording | None) -> None:
    """From now on opaque calls are noted in `into`; None: nothing is recorded."""
    global _recording
    _recording = into


_uncompiled = [False]
"""Whether what functions were compiled from runs instead of them; the last one counts."""


def opaque() -> bool:
    """Whether opaque calls run their code here, not what it was compiled from."""
    return not (_uncompiled[-1] or torch.compiler.is_compiling())


@contextmanager
def uncompiled() -> Iterator[None]:
    """Within, every OpaqueCall runs what it was compiled from."""
    _uncompiled.append(True)
    try:
        yield
    finally:
        _uncompiled.pop()


class OpaqueCall:
    """`code`, called with tensors and None; it returns fresh tensors, or one it was given to overwrite.

    A trace sees `plain` instead, what `code` was compiled from; so does everybody within `uncompiled`.
    """

    def __init__(self, code: Callable[..., Any], plain: Callable[..., Any] | None = None) -> None:
        self._code, self._plain = code, plain or code

    def __call__(self, *arguments: Any) -> Any:
        if not opaque():
            return self._plain(*arguments)
        return self._code(*arguments) if _recording is None else _recording.call(self._code, arguments)
