"""What one run found on one device, as JSON and as counts."""

import json
import os
import platform
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

import torch

from graphpod_policy import Device, __version__
from truth import models
from truth.accuracy import Likelihood, failures
from truth.axes import variants
from truth.cell import Cell, Outcome
from truth.engines import compiled
from truth.matrix import NEAR_TIES_SHARE, ROUNDED_TIES, ROUNDED_TIES_SHARE
from truth.ranks.spread import ALONE, Spread
from truth.scenarios import SCENARIOS

PACKAGES = {Device.Cpu: (), Device.Cuda: ("triton", "flashinfer-python")}
"""What computes on a device, besides torch."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run: where it came from (`provenance`, words to show), its cells, and the accuracy stand-in if weights were
    at hand.
    """

    device: Device
    provenance: dict[str, str]
    cells: tuple[Cell, ...]
    accuracy: tuple[Likelihood, ...] = ()
    spread: Spread = ALONE
    """The ranks of every engine but the reference."""

    def counts(self) -> Counter[Outcome]:
        """Cells by outcome."""
        return Counter(cell.outcome for cell in self.cells)

    def rules(self) -> Counter[str]:
        """Refused cells by rule."""
        return Counter(cell.because for cell in self.cells if cell.outcome is Outcome.Refused)

    def ties(self, *, fixed: bool, uncompiled: bool = False) -> tuple[int, int]:
        """(near-ties, tokens) of the fp32 subjects (`fixed`), or of the others; of their `uncompiled` rows or all."""
        exact = {subject.name for subject in models.subjects(self.device) if subject.fixed}
        cells = [cell for cell in self.cells if (cell.subject in exact) == fixed]
        cells = [cell for cell in cells if not (uncompiled and compiled(cell.variant))]
        return sum(cell.near_ties for cell in cells), sum(cell.tokens for cell in cells)

    def failures(self) -> list[str]:
        """Everything that is not as it must be, cells first."""
        found = [f"{cell}: {cell.summary}" for cell in self.cells if cell.outcome is Outcome.Failed]
        judged = [
            ("in fp32", *self.ties(fixed=True), NEAR_TIES_SHARE, 0),
            ("in 16 bits, uncompiled,", *self.ties(fixed=False, uncompiled=True), ROUNDED_TIES_SHARE, ROUNDED_TIES),
        ]
        # In 16 bits compiled rows have most of them: some cells alone have another share than all.
        if {(cell.variant, cell.scenario) for cell in self.cells} == set(
            product(variants(), (one.name for one in SCENARIOS))
        ):
            judged.append(("in 16 bits", *self.ties(fixed=False), ROUNDED_TIES_SHARE, ROUNDED_TIES))
        for where, ties, tokens, share, least in judged:
            if ties > max(least, share * tokens):
                found.append(f"{ties} near-ties among {tokens} tokens {where} are more than {share:.1%}")
        return found + (failures(list(self.accuracy)) if self.accuracy else [])

    def as_json(self) -> str:
        """One cell a line."""
        head = {"device": self.device, **self.spread.divided, "provenance": self.provenance}
        accuracy = [one.as_dict() for one in self.accuracy]
        cells = ",\n  ".join(json.dumps(cell.as_dict(), ensure_ascii=False) for cell in self.cells)
        start = json.dumps(head | {"accuracy": accuracy}, ensure_ascii=False, indent=1).removesuffix("\n}")
        return f'{start},\n "cells": [\n  {cells}\n ]\n}}\n'

    @classmethod
    def read(cls, file: Path) -> "Result":
        """From a file of `as_json`."""
        raw: dict[str, Any] = json.loads(file.read_text())
        return cls(
            Device(raw["device"]),
            raw["provenance"],
            tuple(Cell.of(one) for one in raw["cells"]),
            tuple(Likelihood.of(one) for one in raw["accuracy"]),
            Spread(**{name: raw[name] for name in Spread._fields if name in raw}),
        )


def provenance(device: Device, command: str, seconds: float, ranks: int = 1) -> dict[str, str]:
    """Where a run's figures come from; each of the `ranks` has a GPU of its own."""
    cores = len(os.sched_getaffinity(0))
    machine = f"{platform.machine()}, {cores} cores"
    if device is Device.Cuda:
        machine = f"{'one' if ranks == 1 else ranks} {torch.cuda.get_device_name()}"
    versions = [f"graphpod {__version__}", f"torch {torch.__version__}"]
    for name in PACKAGES[device]:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"no {name}")
    return {
        "command": command,
        "device": machine,
        "versions": ", ".join([*versions, f"Python {platform.python_version()}"]),
        "date": datetime.now(UTC).date().isoformat(),
        "took": f"{seconds:.0f} s",
    }
