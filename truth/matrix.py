"""The matrix: every subject, every variant, every scenario; each cell passed, failed, or refused by a named rule.

Eager is recorded once for each subject and scenario. Every other variant runs the same schedule with the recorded
tokens and is compared pass by pass; its counters must add up, and where it captures no pass may be eager unless a gate
of the plan says so. Eager itself is compared with the same texts computed alone, as prompts.
"""

import math
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from graphpod_policy import Device
from graphpod_runtime.engine.schedule.sequence import LogprobRequest
from graphpod_runtime.models.loader import load_model
from truth import models
from truth.axes import EAGER, Variant, refused_by
from truth.cell import Cell, Key, Outcome
from truth.engines import compiled, features_of, start_engine
from truth.models import Subject
from truth.ranks.divided import divisible, refused_over_ranks, write_checkpoint
from truth.ranks.spread import ALONE, Spread
from truth.reference import ROUNDING, Reference, alone
from truth.row import Row, words_of
from truth.scenarios import SCENARIOS, Scenario
from truth.schedule.recorded_schedule import compare, furthest_choice

NEAR_TIES_SHARE = 1e-3
"""The most of all fp32 tokens."""
ROUNDED_TIES_SHARE = 2e-2
"""The most of the uncompiled 16-bit tokens of any run, and of all those of a whole one."""
ROUNDED_TIES = 1
"""So many are no share yet: right cells of few tokens have one."""
TIPPING_TRIES = 32
"""Nudges of a subject whose activations are rounded to FP8: chance decides how many of them one nudge tips, and its
cells compare thousands of tokens, the scenario of a nudge 72. Four found 2.9, sixteen 3.9."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """One device's. `poisoned`: every engine but the reference runs in the debug mode that spoils what a pass must not
    read. `spread`: the ranks of every engine but the reference. `chosen`: the cells that run, with what they run; None:
    all.
    """

    device: Device
    subjects: tuple[Subject, ...]
    variants: tuple[Variant, ...]
    scenarios: tuple[Scenario, ...] = SCENARIOS
    poisoned: bool = False
    spread: Spread = ALONE
    chosen: Mapping[Key, Scenario] | None = None

    def __len__(self) -> int:
        return sum(len(self.columns(subject, variant)) for subject in self.subjects for variant in self.variants)

    def of(self, subject: Subject) -> "Matrix":
        """The part with the cells of `subject` alone."""
        return replace(self, subjects=(subject,))

    def parts(self) -> "list[Matrix]":
        """Those that have a process each: the subjects. Ranks of GPUs share memory in the first engine of a process
        alone, so there each variant has one, too."""
        shared = self.device is Device.Cuda and self.spread.ranks > 1
        variants = [(one,) for one in self.variants] if shared else [self.variants]
        parts = [replace(self.of(one), variants=each) for one in self.subjects for each in variants]
        return [part for part in parts if len(part)]

    def scenes(self) -> dict[Key, Scenario]:
        """Where each cell is, and what it runs, in the order of cells."""
        rows = ((subject, variant) for subject in self.subjects for variant in self.variants)
        return {
            Key(subject.name, variant, one.name): one
            for subject, variant in rows
            for one in self.columns(subject, variant)
        }

    def without(self, done: Container[Key]) -> "Matrix":
        """The part without the cells that are `done`."""
        return replace(self, chosen={key: one for key, one in self.scenes().items() if key not in done})

    def cells(self) -> Iterator[Cell]:
        """Every cell, one subject after the other."""
        with tempfile.TemporaryDirectory() as parent:
            for subject in self.subjects:
                if not len(self.of(subject)):
                    continue
                there = divisible(subject, self.spread)
                yield from self._of_subject(there, there.folder(Path(parent)))

    def failed(self, because: str) -> list[Cell]:
        """Every cell, were it failed."""
        return [
            cell for subject in self.subjects for cell in self._all(subject, self.variants, Outcome.Failed, because)
        ]

    def _of_subject(self, subject: Subject, folder: Path) -> Iterator[Cell]:
        features, several = features_of(subject, self.device, spread=self.spread), self.spread != ALONE
        if rule := refused_by(features, EAGER) or (several and refused_over_ranks(subject, features)):
            yield from self._all(subject, self.variants, Outcome.Refused, rule)
            return
        try:
            if several:
                write_checkpoint(folder)
            load = load_model if several else models.load
            eager = start_engine(subject, EAGER, self.device, folder, load=load)
            stages, vocab = self.spread.pipeline, subject.config["vocab_size"]
            reference = Reference(eager, vocab, all_rivals=subject.rounded_to_fp8, stages=stages)
            if not subject.fixed:
                reference.near = reference.near_compiled = ROUNDING * alone(reference, self.scenarios[0]).worst
                if any(compiled(variant) and self.columns(subject, variant) for variant in self.variants):
                    reference.near_compiled = max(reference.near, self._nudged(subject, folder, reference))
        except Exception as error:  # noqa: BLE001 (whatever an engine raises is its cells' failure, and is reported)
            yield from self._all(subject, self.variants, Outcome.Failed, f"no reference: {words_of(error)}")
            return
        for variant in self.variants:
            if rule := refused_by(features, variant):
                yield from self._all(subject, (variant,), Outcome.Refused, rule)
            elif columns := self.columns(subject, variant):
                engines = self.device, self.spread, self.poisoned
                yield from Row(*engines, subject, variant, columns, folder, reference).cells()

    def _nudged(self, subject: Subject, folder: Path, reference: Reference) -> float:
        """The most that a unit or two in the last place of every weight do to eager's log-probabilities. Of a subject
        whose activations are rounded to FP8, twice that or what they do to its choices: few rows see the worst."""
        record, worst = reference.of(self.scenarios[0]), 0.0
        for seed in range(1, 1 + (TIPPING_TRIES if subject.rounded_to_fp8 else 1)):
            runner = start_engine(subject, EAGER, self.device, folder, load=partial(models.nudged, seed=seed))
            wants = LogprobRequest(answer=self.scenarios[0].rivals)
            recorded = self.scenarios[0].recorded(runner, wants, record, record.stages)
            self.scenarios[0].run(recorded)
            found = compare(record, recorded, math.inf).worst
            worst = max(worst, *([2 * found, furthest_choice(record, recorded)] if subject.rounded_to_fp8 else [found]))
        return worst

    def columns(self, subject: Subject, variant: Variant) -> tuple[Scenario, ...]:
        """The scenarios of a row that run."""
        if self.chosen is None:
            return self.scenarios
        keys = (Key(subject.name, variant, one.name) for one in self.scenarios)
        return tuple(self.chosen[key] for key in keys if key in self.chosen)

    def _all(self, subject: Subject, variants: Iterable[Variant], outcome: Outcome, because: str) -> Iterator[Cell]:
        for variant in variants:
            for scenario in self.columns(subject, variant):
                yield Cell(subject.name, variant, scenario.name, outcome, because, met=scenario.met)


Tell = Callable[[int, int, Cell], None]
"""(cells so far, cells of all, the newest)"""


def run(matrix: Matrix, tell: Tell) -> list[Cell]:
    """All cells."""
    found: list[Cell] = []
    for cell in matrix.cells():
        found.append(cell)
        tell(len(found), len(matrix), cell)
    return found
