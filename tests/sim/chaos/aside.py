"""Work beside a test's own: its errors are the test's."""

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
