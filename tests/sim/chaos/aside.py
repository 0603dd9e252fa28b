"""Work beside a test's own: its errors are the test's."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Once, beside the block; awaited at its end. An error of the block tells of the work's, which may be its cause."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        try:
            yield
        except Exception as error:
            if (cause := done.exception()) is not None:
                error.add_note(f"beside it: {type(cause).__name__}: {cause}")
            raise
        done.result()


@contextmanager
def again_and_again(work: Callable[[], None], every: float) -> Iterator[None]:
    """Every so many seconds while the block runs, and at least once."""
    stop = threading.Event()

    def repeat() -> None:
        work()
        while not stop.wait(every):
            work()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(repeat)
        try:
            yield
        finally:
            stop.set()
        done.result()
