"""A matrix by several processes: each of its parts in one of its own, some at once.

They share the folders of compiled code, whose entries appear by renaming; inductor's own folder is made to be shared.
"""

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue

from truth.cell import Cell
from truth.matrix import Matrix, Tell

SPAWN = get_context("spawn")
"""Not forked: a fork cannot use a GPU that its parent has used."""


def run(matrix: Matrix, jobs: int, tell: Tell, until: float = math.inf) -> list[Cell]:
    """All cells in the matrix's order, yielded as they come, of `jobs` parts at once. Those that a process owes when
    it ends are failed. `until`: when processes are ended (`time.monotonic`); cells not run by then are left out.
    """
    results: SimpleQueue[Cell | None] = SimpleQueue()

    def followed(part: Matrix) -> list[Cell]:
        found = []
        for cell in _cells(part, until):
            found.append(cell)
            results.put(cell)
        return found

    with ThreadPoolExecutor(jobs) as threads:
        parts = [threads.submit(followed, part) for part in matrix.parts()]
        for part in parts:
            part.add_done_callback(lambda _: results.put(None))
        running, done = len(parts), 0
        while running:
            if (cell := results.get()) is None:
                running -= 1
            else:
                tell(done := done + 1, len(matrix), cell)
    return [cell for part in parts for cell in part.result()]


def _cells(matrix: Matrix, until: float) -> Iterator[Cell]:
    """Those of `matrix`, by a process that ends with them."""
    if time.monotonic() >= until:
        return
    results, telling = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_tell, args=(matrix, telling))
    process.start()
    telling.close()
    count = 0
    with suppress(EOFError, OSError):  # OSError: it ended amid a message
        while results.poll(None if until == math.inf else max(0.0, until - time.monotonic())):
            yield results.recv()
            count += 1
        process.kill()
        process.join()
        return
    process.join()
    yield from matrix.failed(f"the process of its subject ended with {process.exitcode}")[count:]


def _tell(matrix: Matrix, telling: Connection) -> None:
    for cell in matrix.cells():
        telling.send(cell)
