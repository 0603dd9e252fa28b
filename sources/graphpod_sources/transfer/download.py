"""Many files, in pieces, by several connections at a time.

Threads take pieces from one queue. Each tries a piece again, from where it ended, until nothing of the whole download
has moved for the stall deadline. The calling thread watches that deadline, too: a thread that hangs cannot keep it
from ending the download.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from graphpod_sources.listing import RemoteFile, Source
from graphpod_sources.names import shown, size
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.progress import Phase, Progress
from graphpod_sources.transfer.finished import Finished
from graphpod_sources.transfer.part import Part
from graphpod_sources.transfer.patience import Patience, Stopped
from graphpod_sources.transfer.spans import PIECE

CONNECTIONS = 8
LOOK = 0.2  # s
LEAVE = 0.5
"""Seconds that the other threads have to end after the first that failed. Those that hang are left behind."""
SPACE_EVERY = 64 << 20
"""Bytes after which the free space is looked at again."""
KEEP_SECONDS = 2.0
"""Seconds of a piece after which what came of it is on disk: a kill costs no more, however slow the line is."""
RESTARTS = 5
"""Times that a file is begun which can be had only from its start: a source that always ends early would be read for
ever, since bytes do come."""
LARGEST_UNKNOWN = 64 << 30
"""Bytes of a file whose size its source does not say."""


@dataclass(slots=True)
class Piece:
    """A request to make: bytes `at` to before `end` (None: to the file's end)."""

    part: Part
    start: int
    end: int | None
    at: int


class Download:
    """The files of one source into one folder. `space` raises `Problem` (DiskFull) when there is too little of it."""

    def __init__(
        self,
        source: Source,
        folder: Path,
        progress: Progress,
        patience: Patience,
        space: Callable[[], None],
        connections: int = CONNECTIONS,
        piece: int = PIECE,
        largest_unknown: int = LARGEST_UNKNOWN,
    ) -> None:
        self._source, self._folder, self._progress, self._patience = source, folder, progress, patience
        self._space, self._connections, self._piece_size = space, connections, piece
        self._largest_unknown = largest_unknown
        self._finished = Finished(folder)
        self._lock, self._ended, self._idle = threading.Lock(), threading.Event(), threading.Event()
        self._queue: deque[Piece] = deque()
        self._pieces: Counter[str] = Counter()
        self._sums: dict[str, str | None] = {}
        self._fatal: Problem | None = None
        self._last: Problem | None = None
        self._unlooked = self._working = 0

    def missing(self, files: Sequence[RemoteFile]) -> list[RemoteFile]:
        """Those of the files that no earlier run has finished."""
        return [file for file in files if not self._finished.has(file)]

    def run(self, files: Sequence[RemoteFile]) -> dict[str, str | None]:
        """Fetch, verify and place files; their SHA-256 by path, None where the source states none.

        Raises `Problem`: the first that no other try can help, or, once nothing has moved for the stall deadline, the
        last one that a try met.
        """
        missing = self.missing(files)
        for file in files:
            if file not in missing:
                self._sums[file.path] = file.sha256
                self._progress.found((self._folder / file.path).stat().st_size, files=1)
        for file in missing:
            part = Part(self._folder, file)
            self._progress.found(part.open())
            pieces = part.pieces(self._piece_size) or [(0, 0)]
            self._pieces[file.path] = len(pieces)
            self._queue.extend(Piece(part, start, end, start) for start, end in pieces)
        count = min(self._connections, len(self._queue))
        self._working = count
        if count == 0:
            return self._sums
        self._ended.clear()
        self._idle.clear()
        self._progress.enter(Phase.Downloading)
        for number in range(count):
            threading.Thread(target=self._work, name=f"fetch-{number}", daemon=True).start()
        while not self._ended.wait(LOOK):
            if self._progress.idle > self._patience.stall_seconds:
                nothing = f"no byte came for {self._patience.stall_seconds:g} s"
                self._end(self._last or Problem(Reason.Stalled, nothing))
        if self._fatal is not None:
            self._idle.wait(LEAVE)
            raise self._fatal
        return self._sums

    def _end(self, problem: Problem) -> None:
        with self._lock:
            self._fatal = self._fatal or problem
        self._patience.stop.set()
        self._ended.set()

    def _work(self) -> None:
        try:
            self._take_pieces()
        finally:
            with self._lock:
                self._working -= 1
                if self._working == 0:
                    self._idle.set()
                    self._ended.set()

    def _take_pieces(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                if not self._queue:
                    return
                piece = self._queue.popleft()
            name = shown(piece.part.file.path)
            try:
                self._fetch(piece)
                self._close(piece.part)
            except Stopped:
                return
            except Problem as problem:
                self._end(problem)
            except OSError as error:
                step = "look at the claim that spec.model.cache names"
                self._end(Problem(Reason.ServerError, f"{name}: cannot be written ({error})", next_step=step))
            except BaseException as error:
                self._end(Problem(Reason.ServerError, f"{name}: {error!r}"))
                raise

    def _fetch(self, piece: Piece) -> None:
        """One piece, tried again from where it ended."""
        failures = restarts = 0
        while True:
            before = piece.at
            try:
                self._read(piece)
                return
            except Problem as problem:
                self._last = problem
                if not piece.part.file.ranges or piece.end is None:
                    self._progress.found(piece.start - piece.at)
                    piece.at = piece.start
                    piece.part.restart()
                    restarts += 1
                    if restarts == RESTARTS:
                        raise
                failures = 0 if piece.at > before else failures + 1
                self._patience.wait(problem, failures)

    def _read(self, piece: Piece) -> None:
        """The rest of a piece, by one request. What came is kept, whatever ends the request."""
        part, before, kept = piece.part, piece.at, monotonic()
        keeps = piece.end is not None and part.file.ranges
        most = self._largest_unknown if piece.end is None else piece.end
        if before == piece.end:
            return
        try:
            for chunk in self._source.read(part.file, piece.at, piece.end):
                if self._ended.is_set():
                    raise Stopped
                if piece.at + len(chunk) > most:
                    raise Problem(
                        Reason.ChangedUnderUs, f"{shown(part.file.path)}: sends more than {size(most)} (byte {most})"
                    )
                self._look(len(chunk))
                part.write(piece.at, chunk)
                piece.at += len(chunk)
                self._progress.receive(len(chunk))
                self._last = None  # what it met is over
                if keeps and monotonic() - kept >= KEEP_SECONDS:
                    part.keep(before, piece.at)
                    before, kept = piece.at, monotonic()
        finally:
            if keeps:
                part.keep(before, piece.at)
        if piece.end is not None and piece.at < piece.end:
            raise Problem(Reason.Truncated, f"{shown(part.file.path)}: ended at byte {piece.at} of {piece.end}")

    def _look(self, count: int) -> None:
        with self._lock:
            self._unlooked += count
            if self._unlooked < SPACE_EVERY:
                return
            self._unlooked = 0
        self._space()

    def _close(self, part: Part) -> None:
        """One piece less; a file's last one has it verified and placed."""
        with self._lock:
            self._pieces[part.file.path] -= 1
            last, all_taken = self._pieces[part.file.path] == 0, not self._queue
        if not last:
            return
        if all_taken:
            self._progress.enter(Phase.Verifying)
        got = part.path.stat().st_size
        try:
            self._sums[part.file.path] = part.verify(self._progress.work)
        except Problem:
            self._progress.found(-got)
            raise
        with self._lock:
            self._finished.add(part.file.path, got, part.file.identity)
        part.place()
        self._progress.finish_file()
