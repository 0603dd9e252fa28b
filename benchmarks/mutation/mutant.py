"""One small fault: which text of which file becomes what, and which tests should find it."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).parent / "mutants.toml"


class TableError(ValueError):
    """A row of the table that does not fit the code: the data has to follow it."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault in `file` (relative to the repository): `original` becomes `replacement`.

    `tests` are test files or folders, tried in this order. `equivalent` says why no test can find the fault.
    """

    id: str
    file: str
    original: str
    replacement: str
    tests: tuple[str, ...]
    why: str
    equivalent: str | None = None

    def applied(self, source: str) -> str:
        """`source` with the fault. TableError unless the original stands in it exactly once."""
        if (times := source.count(self.original)) != 1:
            raise TableError(
                f"mutant {self.id}: its original is in {self.file} {times} times, not once; "
                f"copy the line as it reads today:\n{self.original}"
            )
        return source.replace(self.original, self.replacement)


def mutants(path: Path = TABLE) -> list[Mutant]:
    """The rows of the table. TableError for two of one id, and for a row that changes nothing or has no tests."""
    rows = [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in tomllib.loads(path.read_text())["mutant"]]
    for row in rows:
        if row.original == row.replacement or not row.tests:
            raise TableError(f"mutant {row.id}: a row needs tests and a replacement that differs from its original")
    if len(ids := [row.id for row in rows]) != len(set(ids)):
        raise TableError(f"two mutants of one id: {sorted({one for one in ids if ids.count(one) > 1})}")
    return rows
