"""Who may have an engine in this process: several that run in their callers' threads, or one in a thread of its own.

A start patches torch while it captures, and a GPU refuses other threads' calls meanwhile. Engines in their callers'
threads take turns, so they may be several; one that runs by itself cannot take turns.
"""

import gc
import threading

_LOCK = threading.Lock()
_OPEN: list["Ownership"] = []


class SecondEngine(RuntimeError):
    """Another engine of this process is in the way; the message says which."""


class Ownership:
    """The right to one engine, from its start until `end`."""

    def __init__(self, own_thread: bool) -> None:
        self._own_thread = own_thread
        with _LOCK:
            if any(other._own_thread for other in _OPEN):
                raise SecondEngine("an AsyncEngine is open in this process and must be the only one; close it first")
            if own_thread and _OPEN:
                raise SecondEngine(
                    f"{len(_OPEN)} Engine(s) are open in this process, and an AsyncEngine must be the only one; close "
                    "them first"
                )
            _OPEN.append(self)

    @classmethod
    def of_callers_thread(cls) -> "Ownership":
        """Of an Engine."""
        return cls(own_thread=False)

    @classmethod
    def of_own_thread(cls) -> "Ownership":
        """Of an AsyncEngine."""
        return cls(own_thread=True)

    def end(self) -> None:
        """Another engine may be started. A second call does nothing."""
        with _LOCK:
            if self in _OPEN:
                _OPEN.remove(self)


def free_memory() -> None:
    """Gives the system, and the GPU, what a closed engine has left: graphs and tensors refer to each other in circles,
    and torch keeps what they had on the GPU for tensors to come, where the next engine would not find it."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
