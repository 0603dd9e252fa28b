"""The table of contracts and their tests name each other."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| (\d+) \|.*\| \[(test_(\d+)_\w+)\]\(\.\./tests/contracts/\2\.py\) \|$")


def test_every_contract_of_the_table_has_its_tests_and_every_file_of_tests_its_row() -> None:
    rows = [row for line in (ROOT / "docs/contracts.md").read_text().splitlines() if (row := ROW.match(line))]
    assert [int(row[1]) for row in rows] == [int(row[3]) for row in rows] == [*range(1, 20), 29, 30]
    assert {row[2] for row in rows} == {path.stem for path in (ROOT / "tests/contracts").glob("test_*.py")}
