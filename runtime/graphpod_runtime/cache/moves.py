"""Moves of pages between the device and the host pool: those on their way, and those that wait for their turn.

A load of a long prefix, or the eviction in front of it, is many moves. Were they all launched at once, the host would
launch no pass meanwhile, and the copies would take the device's memory from the passes of others. So a turn of the
engine's loop launches a bounded number of pages, in the order of the calls.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

TURNS_IN_FLIGHT = 2
"""A move begins behind the pass that is in flight when it is launched, so that of the turn before has just begun."""


class Move(Protocol):
    """Pages on their way."""

    @property
    def landed(self) -> bool:
        """Whether they have come, or left."""


class Done:
    """Is Move, of a copy that is done when its call returns."""

    landed = True


class Stored(NamedTuple):
    """What a store lets happen, and when."""

    left: Move
    """Its pages may be written."""
    kept: Move
    """Its slots may be read. Not before `left`."""


class Awaited:
    """Is Move, of a copy that was called for: it may wait for its turn, be on its way, have landed or been given up."""

    __slots__ = ("brings", "given_up", "move")

    def __init__(self, *, brings: bool = False) -> None:
        self.brings = brings
        """Of a load."""
        self.move: Move | None = None
        """Set when it is launched."""
        self.given_up = False
        """Nothing was copied, or not all of it."""

    @property
    def launched(self) -> bool:
        """Whether nothing is to be launched for it any more."""
        return self.given_up or self.move is not None

    @property
    def lost(self) -> bool:
        """Whether the pages that it should have brought hold anything."""
        return self.brings and self.given_up

    @property
    def landed(self) -> bool:
        return self.given_up or (self.move is not None and self.move.landed)


@dataclass(eq=False, slots=True)
class Copy:
    """A store or a load of as many pages as one move has at most."""

    slots: list[int]
    pages: list[int]
    behind: list[Awaited] = field(default_factory=list)
    """What must have been launched before."""
    left: Awaited = field(default_factory=Awaited)
    """Of a store: its pages may be written."""
    done: Awaited = field(default_factory=Awaited)

    def give_up(self) -> None:
        """It has failed, or is not to be launched."""
        self.left.given_up = self.done.given_up = True


class CopyQueue:
    """Copies of one direction in the order of their calls."""

    def __init__(self, launch: Callable[[Copy], None], turn_pages: int) -> None:
        """`launch` sets the moves of a copy. A turn launches `turn_pages`, and no more than fit next to those of
        TURNS_IN_FLIGHT - 1 turns on their way; always one copy at least where none is on its way."""
        self._launch, self._turn_pages = launch, turn_pages
        self._waiting: deque[Copy] = deque()
        self._flying: deque[Copy] = deque()

    @property
    def waiting(self) -> int:
        """Pages whose turn has not come."""
        return sum(len(copy.pages) for copy in self._waiting)

    def add(self, copy: Copy) -> None:
        """`copy` is the last."""
        self._waiting.append(copy)

    def next(self) -> None:
        """Launches the first, whatever is on its way."""
        copy = self._waiting.popleft()
        self._launch(copy)
        self._flying.append(copy)

    def turn(self) -> None:
        """Launches what a turn may."""
        while self._flying and self._flying[0].done.landed:
            self._flying.popleft()
        flying, launched = sum(len(copy.pages) for copy in self._flying), 0
        while self._waiting and all(one.launched for one in self._waiting[0].behind):
            pages = len(self._waiting[0].pages)
            too_many = launched + pages > self._turn_pages or flying + pages > TURNS_IN_FLIGHT * self._turn_pages
            if flying and too_many:
                return
            self.next()
            flying, launched = flying + pages, launched + pages

    def give_up(self) -> None:
        """What waits is not copied."""
        while self._waiting:
            self._waiting.popleft().give_up()


class Latest:
    """Moves of one direction by what they move: pages or slots. A later one of the same replaces the former."""

    def __init__(self) -> None:
        self._moves: dict[int, tuple[int, Awaited]] = {}
        self._order: deque[tuple[int, Awaited, list[int]]] = deque()
        self._number = 0

    def add(self, moved: Sequence[int], move: Awaited) -> None:
        """`move` is the latest."""
        self.tidy()
        self._number += 1
        self._order.append((self._number, move, list(moved)))
        self._moves.update(dict.fromkeys(moved, (self._number, move)))

    def of(self, moved: Iterable[int]) -> list[Awaited]:
        """The one behind which all of these have landed; none where they have."""
        if not self._moves:
            return []
        entries = (self._moves[one] for one in moved if one in self._moves)
        flying = (entry for entry in entries if not entry[1].given_up)
        found = max(flying, key=lambda entry: entry[0], default=None)
        return [] if found is None or found[1].landed else [found[1]]

    def steps(self, moved: Sequence[int]) -> list[tuple[int, Awaited]]:
        """Behind which moves the first of `moved` have landed: each entry is the place from which on its move is
        needed, too."""
        self.tidy()
        found, last = list[tuple[int, Awaited]](), 0
        for place, one in enumerate(moved) if self._moves else ():
            number, move = self._moves.get(one, (0, None))
            if move is not None and number > last and not move.landed:
                found.append((place, move))
                last = number
        return found

    def number(self, one: int) -> int:
        """Its place in the order; 0 where nothing is known of it."""
        return self._moves.get(one, (0,))[0]

    def tidy(self) -> None:
        """Forgets what has landed."""
        while self._order and self._order[0][1].landed:
            number, _, moved = self._order.popleft()
            for one in moved:
                if self.number(one) == number:
                    del self._moves[one]
