"""Which cells of a matrix run, where not all do: a seeded sample of its rows."""

import random
from dataclasses import replace

from graphpod_policy import CompileMode
from truth.axes import Variant, refused_by
from truth.engines import features_of
from truth.matrix import Key, Matrix
from truth.models import Subject
from truth.ranks import divisible, refused_over_ranks

SEED = 21
PLAIN_ROWS = 2
"""Policies of a subject in a sample; every second subject has a compiled one as well, which takes longest."""


def sample(matrix: Matrix, count: int, seed: int = SEED) -> Matrix:
    """`matrix` with about `count` cells that no rule refuses: whole rows but for faults, of which a row has one. Few
    subjects with several rows each: a subject costs a process. They run in the order in which they were drawn."""
    draw = random.Random(seed)
    running = _running(matrix)
    drawn = draw.sample(running, len(running))
    faults = [one.name for one in matrix.scenarios if one.fault is not None]
    others = [one.name for one in matrix.scenarios if one.fault is None]
    chosen: set[Key] = set()
    for turn, subject in enumerate(drawn):
        for variant in _rows(matrix, subject, draw, compiled=turn % 2 == 1):
            if len(chosen) >= count:
                break
            names = [*others, *draw.sample(faults, min(1, len(faults)))]
            chosen |= {Key(subject.name, variant, name) for name in names}
    return replace(matrix, subjects=tuple(drawn), chosen=frozenset(chosen))


def _rows(matrix: Matrix, subject: Subject, draw: random.Random, *, compiled: bool) -> list[Variant]:
    features = features_of(subject, matrix.device)
    running = [one for one in matrix.variants if refused_by(features, one) is None]
    plain = [one for one in running if one.compile is CompileMode.Nothing]
    slow = [one for one in running if one.compile is CompileMode.Inductor]
    rows = draw.sample(plain, min(PLAIN_ROWS, len(plain)))
    return [*rows, *(draw.sample(slow, 1) if slow and (compiled or not plain) else [])]


def _running(matrix: Matrix) -> list[Subject]:
    """The subjects that no rule of ranks refuses."""
    if matrix.tensor == 1:
        return list(matrix.subjects)
    found = []
    for subject in matrix.subjects:
        there = divisible(subject, matrix.tensor)
        features = features_of(there, matrix.device, tensor=matrix.tensor)
        if refused_over_ranks(there, features) is None:
            found.append(subject)
    return found
