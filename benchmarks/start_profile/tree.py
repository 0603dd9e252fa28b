"""Call trees of samples."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.start_profile.stages import Stretch

SHARE = 0.03
"""Of a stretch: calls that take less are left out."""
LEAST = 0.04
"""Seconds: the same, of short stretches."""
IDLE = ("wait", "_wait_for_tstate_lock", "select", "_worker", "_leave_with_the_front")
"""Innermost functions of threads that have nothing to do."""


@dataclass(slots=True)
class Node:
    """A call and those that it made, with their seconds."""

    seconds: float = 0.0
    calls: dict[str, "Node"] = field(default_factory=dict)

    def add(self, stack: Sequence[str], seconds: float) -> None:
        """`seconds` in which the calls of `stack`, outermost first, were open."""
        self.seconds += seconds
        if stack:
            self.calls.setdefault(stack[0], Node()).add(stack[1:], seconds)

    def kept(self, least: float) -> list[tuple[str, "Node"]]:
        """The calls that took `least` seconds, longest first."""
        there = (each for each in self.calls.items() if each[1].seconds >= least)
        return sorted(there, key=lambda each: -each[1].seconds)

    def lines(self, least: float, depth: int = 0) -> Iterator[str]:
        """The tree for people. A call whose time is nearly all in one other is on one line with that."""
        for label, node in self.kept(least):
            chain, last = [label], node
            while len(only := last.kept(least)) == 1 and only[0][1].seconds > last.seconds - least:
                chain.append(only[0][0])
                last = only[0][1]
            yield f"{'  ' * depth}{node.seconds:6.2f} s  {_short(chain)}"
            yield from last.lines(least, depth + 1)

    def as_dict(self, least: float) -> dict[str, Any]:
        """Plain values."""
        calls = {label: node.as_dict(least) for label, node in self.kept(least)}
        return {"seconds": round(self.seconds, 3), **({"calls": calls} if calls else {})}


@dataclass(slots=True)
class Profile:
    """What the samples of one process have in one stretch."""

    stretch: Stretch
    tree: Node
    """Of the main thread."""
    cpu: float
    """Seconds for which the main thread had a processor."""
    others: Counter[str]
    """Seconds of other threads that did not wait, by thread and innermost call."""

    @property
    def least(self) -> float:
        """Seconds of the shortest call that is shown."""
        return max(LEAST, SHARE * self.stretch.seconds)

    def text(self) -> Iterator[str]:
        """For people."""
        yield f"{self.stretch.name}: {self.stretch.seconds:.2f} s, {self.cpu:.2f} s of it on a processor"
        yield from self.tree.lines(self.least, 1)
        for name, seconds in self.others.most_common(6):
            if seconds >= self.least:
                yield f"    meanwhile {seconds:.2f} s  {name}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        others = {name: round(seconds, 3) for name, seconds in self.others.most_common(20)}
        found = {"name": self.stretch.name, "seconds": round(self.stretch.seconds, 3), "cpu": round(self.cpu, 3)}
        return {**found, "main": self.tree.as_dict(self.least), "others": others}


def profiles(content: dict[str, Any], stretches: Sequence[Stretch]) -> list[Profile]:
    """Of what a sampler wrote: a profile of each stretch in which there is a sample."""
    stacks = content["stacks"]
    found = [Profile(stretch, Node(), 0.0, Counter()) for stretch in stretches]
    for ended, seconds, cpu, threads in content["samples"]:
        middle = ended - seconds / 2
        one = next((each for each in found if each.stretch.began <= middle < each.stretch.ended), None)
        if one is None:
            continue
        one.cpu += cpu
        for name, number in threads:
            if name == "main":
                one.tree.add(stacks[number], seconds)
            elif stacks[number][-1].split()[-1] not in IDLE:
                one.others[f"{name}: {stacks[number][-1]}"] += seconds
    return [each for each in found if each.tree.seconds]


def _short(chain: Sequence[str]) -> str:
    """The first and the last calls of a chain: what lies between is mostly a library's way to the next."""
    return " > ".join(chain if len(chain) <= 7 else (*chain[:3], "…", *chain[-3:]))
