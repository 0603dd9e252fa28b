"""When requests arrive: a closed loop has so many at a time, an open loop sends them whatever the server does."""

from collections.abc import Iterator
from enum import StrEnum
from random import Random

import msgspec


class Arrivals(StrEnum):
    """How the gaps of an open loop are drawn."""

    Constant = "constant"
    Poisson = "poisson"
    Gamma = "gamma"


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """`width` requests at a time: the next is sent when one has ended."""

    width: int

    def share(self, number: int, processes: int) -> int:
        """The part of the width that driver `number` of `processes` keeps busy. The parts add up to the width."""
        return self.width // processes + (number < self.width % processes)


class Open(msgspec.Struct, frozen=True, tag="open"):
    """`rate` requests a second. `burstiness` is the shape of a gamma distribution of the gaps, whose mean stays
    1 / rate: 1 is Poisson, less is burstier, more is steadier (the definition of vLLM's benchmark).
    """

    rate: float
    arrivals: Arrivals = Arrivals.Poisson
    burstiness: float = 1.0


Loop = Closed | Open


def driver_of(loop: Loop, number: int, processes: int) -> int:
    """The driver process that sends conversation `number`. In a closed loop a conversation belongs to one of the
    loop's places, and a place to one driver, so that each driver has work for its share of the width.
    """
    place = number % loop.width if isinstance(loop, Closed) else number
    return place % processes


def schedule(loop: Open, seed: str) -> Iterator[float]:
    """Seconds after the start at which request 0, 1, 2 … is sent: ascending, without an end."""
    rng = Random(f"{seed}:arrivals")
    shape = 1.0 if loop.arrivals is Arrivals.Poisson else loop.burstiness
    at = 0.0
    while True:
        yield at
        if loop.arrivals is Arrivals.Constant:
            at += 1 / loop.rate
        else:
            at += rng.gammavariate(shape, 1 / (loop.rate * shape))
