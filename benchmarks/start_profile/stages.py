"""When each stage of a start was, from the engine's log and the stages that it reports."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (\S+) [A-Z]+ (.*)$", re.MULTILINE)
_ENDED = re.compile(r"^([A-Z]\w+): \d+\.\d s$")

SHORTEST = 0.05
"""Seconds of a stretch between two stages that has a name."""


class Stretch(NamedTuple):
    """A part of a start, between two times of the system's clock."""

    name: str
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Line(NamedTuple):
    """Of the log."""

    time: float
    logger: str
    words: str


def lines(log: str) -> Iterator[Line]:
    """Those of `log` that have a time: a traceback has none."""
    for when, logger, words in _LINE.findall(log):
        yield Line(datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp(), logger, words)


def stretches(log: str, seconds: Mapping[str, float], began: float, ready: float) -> list[Stretch]:
    """The start from `began` to `ready`, without a gap of SHORTEST or more: its stages, each with the `seconds` that
    were reported, up to the time at which the log says that it ended, and what lies between them."""
    ends = {found[1]: line.time for line in lines(log) if (found := _ENDED.match(line.words))}
    stages = [Stretch(name, ends[name] - took, ends[name]) for name, took in seconds.items() if name in ends]
    edges = (Stretch("start", began, began), *stages, Stretch("Ready", ready, ready))
    found = []
    for before, after in pairwise(edges):
        if after.began - before.ended >= SHORTEST:
            found.append(Stretch(f"between {before.name} and {after.name}", before.ended, after.began))
        if after in stages:
            found.append(after)
    return found
