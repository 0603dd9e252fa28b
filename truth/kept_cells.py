"""Cells of a run that was ended, by which the next run goes on: one a line, in the folder of the result."""

import json
from pathlib import Path

from truth.cell import Cell, Key, Outcome
from truth.matrix import Matrix


def incomplete(result: Path) -> Path:
    """The file of the cells of an incomplete `result`."""
    return result.with_suffix(".incomplete.jsonl")


def kept(file: Path, matrix: Matrix) -> dict[Key, Cell]:
    """The cells in `file` that `matrix` would run and that have not failed."""
    if not file.is_file():
        return {}
    cells = [Cell.of(json.loads(line)) for line in file.read_text().splitlines()]
    asked = matrix.scenes()
    return {
        cell.key: cell
        for cell in cells
        if cell.outcome is not Outcome.Failed and cell.key in asked and cell.met == asked[cell.key].met
    }


def keep(file: Path, cell: Cell) -> None:
    """Adds one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lines:
        lines.write(json.dumps(cell.as_dict(), ensure_ascii=False) + "\n")
