"""Which cells of a matrix run, where not all do: faults over ranks, drawn so that pairs are covered; a seeded sample.

A fault has the start of an engine of its own. So it is drawn: its row, its kind, the rank that meets it, and what is
served then. Every two of these meet in some cell, and so do each policy, kind and rank. Only policies with compiled
layers do not meet every subject: such a start takes a minute.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import NamedTuple

from graphpod_policy import Phase, Policy
from truth.axes import Variant, refused_by
from truth.cell import Key
from truth.engines import compiled, features_of
from truth.matrix import Matrix
from truth.models import Subject
from truth.ranks.divided import divisible, refused_over_ranks
from truth.ranks.spread import ALONE
from truth.scenarios import Name, Scenario

SEED = 21
PLAIN_ROWS = 2
"""Policies of a subject in a sample; every second subject has a compiled one as well, which takes longest."""
TOGETHER = (*combinations(range(5), 2), (1, 2, 3))
"""What a draw covers, by the fields of Drawn."""


class Drawn(NamedTuple):
    """One fault, and where it is met."""

    subject: str
    variant: Variant
    kind: Name
    rank: int | None
    """None: all ranks."""
    served: Name

    def covers(self) -> Iterator[tuple[object, ...]]:
        """What meets in it."""
        for fields in TOGETHER:
            if fields != (0, 1) or not compiled(self.variant):
                yield fields, *(self[field] for field in fields)


@dataclass(frozen=True, slots=True)
class Coverage:
    """`drawn` faults of `possible` ones; `covered` tuples of all `tuples` meet in them."""

    drawn: int
    possible: int
    covered: int
    tuples: int

    def __str__(self) -> str:
        return f"{self.drawn} of {self.possible} faults are drawn: {self.covered} of {self.tuples} pairs meet in them"


def with_drawn_faults(matrix: Matrix, *, whole: bool = False, seed: int = SEED) -> tuple[Matrix, Coverage]:
    """`matrix` with all cells that have no fault or are refused, and drawn faults. `whole`: each kind in each row."""
    named = {one.name: one for one in matrix.scenarios}
    rows = {(subject.name, variant) for subject in _running(matrix) for variant in _variants(matrix, subject)}
    possible = _possible(matrix)
    pairs = _covered(possible)
    drawn = _drawn(pairs, random.Random(seed), whole=whole)
    chosen: dict[Key, Scenario] = {
        Key(subject.name, variant, name): one
        for subject, variant, (name, one) in product(matrix.subjects, matrix.variants, named.items())
        if one.fault is None or (subject.name, variant) not in rows
    }
    for one in drawn:
        fault = named[one.kind]
        chosen[Key(*one[:3])] = named[one.served]._replace(
            name=one.kind, fault=fault.fault, degraded_by=fault.degraded_by, fault_of=one.rank, like=one.served
        )
    meet = frozenset().union(*(pairs[one] for one in drawn))
    of = frozenset().union(*pairs.values())
    return replace(matrix, chosen=chosen), Coverage(len(drawn), len(possible), len(meet), len(of))


def sample(matrix: Matrix, count: int, seed: int = SEED) -> Matrix:
    """`matrix` with about `count` of its cells that no rule refuses, in whole rows. Few subjects with several rows
    each: a subject costs a process. They run in the order in which they were drawn."""
    draw = random.Random(seed)
    running = _running(matrix)
    drawn = draw.sample(running, len(running))
    chosen: dict[Key, Scenario] = {}
    for turn, subject in enumerate(drawn):
        for variant in _sampled(matrix, subject, draw, slow=turn % 2 == 1):
            if len(chosen) < count:
                chosen |= {Key(subject.name, variant, one.name): one for one in matrix.columns(subject, variant)}
    return replace(matrix, subjects=tuple(drawn), chosen=chosen)


def _possible(matrix: Matrix) -> list[Drawn]:
    faults = [one.name for one in matrix.scenarios if one.fault is not None]
    served = [one.name for one in matrix.scenarios if one.fault is None and not one.own_passes]
    rows = [
        (subject.name, variant)
        for subject in _running(matrix)
        for variant in _variants(matrix, subject)
        if any(variant.policy(phase) is not Policy.Disabled for phase in Phase)
    ]
    ranks = (None, *range(matrix.spread.ranks))
    return [Drawn(*row, *rest) for row, *rest in product(rows, faults, ranks, served)]


def _covered(possible: list[Drawn]) -> dict[Drawn, frozenset[int]]:
    """What each covers, as numbers, which are compared far faster than the variants in it."""
    numbers: dict[tuple[object, ...], int] = {}
    return {one: frozenset(numbers.setdefault(pair, len(numbers)) for pair in one.covers()) for one in possible}


def _drawn(pairs: dict[Drawn, frozenset[int]], draw: random.Random, *, whole: bool) -> list[Drawn]:
    """Of each cell at most one: the one with the most that has not met yet, uncompiled ones first."""
    order = sorted(draw.sample(list(pairs), len(pairs)), key=lambda one: compiled(one.variant))
    left = set().union(*pairs.values())
    drawn: dict[tuple[object, ...], Drawn] = {}
    for most in range(len(TOGETHER), -1 if whole else 0, -1):
        for one in order:
            if len(left & pairs[one]) >= most and one[:3] not in drawn:
                drawn[one[:3]] = one
                left -= pairs[one]
    return list(drawn.values())


def _sampled(matrix: Matrix, subject: Subject, draw: random.Random, *, slow: bool) -> list[Variant]:
    running = _variants(matrix, subject)
    plain = [one for one in running if not compiled(one)]
    others = [one for one in running if compiled(one)]
    rows = draw.sample(plain, min(PLAIN_ROWS, len(plain)))
    return [*rows, *(draw.sample(others, 1) if others and (slow or not plain) else [])]


def _variants(matrix: Matrix, subject: Subject) -> list[Variant]:
    """The rows of a subject that no rule refuses."""
    features = features_of(subject, matrix.device, spread=matrix.spread)
    return [one for one in matrix.variants if refused_by(features, one) is None]


def _running(matrix: Matrix) -> list[Subject]:
    """The subjects that no rule of ranks refuses."""
    if matrix.spread == ALONE:
        return list(matrix.subjects)
    found = []
    for subject in matrix.subjects:
        there = divisible(subject, matrix.spread)
        features = features_of(there, matrix.device, spread=matrix.spread)
        if refused_over_ranks(there, features) is None:
            found.append(subject)
    return found
