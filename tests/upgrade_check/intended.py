"""Which differences from an earlier commit are meant: `intended.toml`, a table."""

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

KEPT = "kept"
"""The area of services that ran before the upgrade: no difference there is ever intended."""
FILE = Path(__file__).with_name("intended.toml")


@dataclass(frozen=True)
class Row:
    """Differences that belong together; `what` and `cases` have patterns as in a shell. No row covers `KEPT`."""

    area: str
    what: tuple[str, ...]
    change: str
    why: str
    cases: tuple[str, ...] = ("*",)
    """Of children: the names of the specs."""

    def covers(self, area: str, what: str, case: str) -> bool:
        return area == self.area != KEPT and _fits(what, self.what) and _fits(case, self.cases)


def _fits(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Intended:
    rows: tuple[Row, ...]

    @classmethod
    def read(cls) -> "Intended":
        rows = tomllib.loads(FILE.read_text())["row"]
        lists = ("what", "cases")
        return cls(
            tuple(Row(**{name: tuple(one) if name in lists else one for name, one in row.items()}) for row in rows)
        )

    def row(self, area: str, what: str, case: str = "") -> Row | None:
        return next((row for row in self.rows if row.covers(area, what, case)), None)


BASE: str = tomllib.loads(FILE.read_text())["base"]
"""The commit that the table is about."""
