"""The table of contracts and their tests name each other."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| (\d+) \|.*\|([^|]+)\|$")
LINK = re.compile(r"\[(test_(\d+)_\w+)\]\(\.\./tests/contracts/\1\.py\)")


def test_every_contract_of_the_table_has_its_tests_and_every_file_of_tests_its_row() -> None:
    rows = [row for line in (ROOT / "docs/contracts.md").read_text().splitlines() if (row := ROW.match(line))]
    tests = {int(row[1]): LINK.findall(row[2]) for row in rows}
    assert list(tests) == [*range(1, 20), 29, 30]
    for contract, named in tests.items():
        assert {int(number) for _, number in named} == {contract}
    files = sorted(path.stem for path in (ROOT / "tests/contracts").glob("test_*.py"))
    assert sorted(name for named in tests.values() for name, _ in named) == files
