"""Cells of a run that was ended, by which the next run goes on: one a line, in the folder of the result.

Each has the fingerprint of the code that it ran, and over how many ranks. Other cells are dropped: a result is of one
version, and of one spread.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from truth.cell import Cell, Key, Outcome
from truth.matrix import Matrix

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "policy", ROOT / "runtime", ROOT / "truth")
"""What a cell runs."""


class Kept(NamedTuple):
    """What a run takes from the one before it, and how many lines of its file it drops."""

    cells: dict[Key, Cell]
    other_code: int
    unreadable: int


def fingerprint(folders: Iterable[Path] = SOURCES) -> str:
    """Of the Python code in `folders`, names and content."""
    found = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            found.update(repr((str(file.relative_to(folder.parent)), file.read_bytes())).encode())
    return found.hexdigest()[:16]


def incomplete(result: Path) -> Path:
    """The file of the cells of an incomplete `result`."""
    return result.with_suffix(".incomplete.jsonl")


def kept(file: Path, matrix: Matrix, code: str) -> Kept:
    """The cells in `file` that `matrix` would run, that ran `code` and that have not failed. Lines that ran other code,
    or that a kill has cut, leave the file.
    """
    if not file.is_file():
        return Kept({}, 0, 0)
    lines = file.read_bytes().splitlines(keepends=True)
    same, cells, other_code, unreadable = list[bytes](), list[Cell](), 0, 0
    for line in lines:
        try:
            ran, raw = json.loads(line)
            cell = Cell.of(raw)
        except (ValueError, KeyError, TypeError):
            unreadable += 1
            continue
        if ran == code:
            same.append(line.rstrip() + b"\n")
            cells.append(cell)
        else:
            other_code += 1
    if same != lines:
        rewritten = file.with_suffix(".new")
        rewritten.write_bytes(b"".join(same))
        rewritten.replace(file)
    asked = matrix.scenes()
    taken = {
        cell.key: cell
        for cell in cells
        if cell.outcome is not Outcome.Failed and cell.key in asked and cell.met == asked[cell.key].met
    }
    return Kept(taken, other_code, unreadable)


def keep(file: Path, cell: Cell, code: str) -> None:
    """Adds one that ran `code`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lines:
        lines.write(json.dumps([code, cell.as_dict()], ensure_ascii=False) + "\n")
