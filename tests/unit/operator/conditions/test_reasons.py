"""The tables of reasons, one for each condition, against the names that the code uses."""

from collections import Counter

from graphpod_operator.conditions.reasons import TABLES, Reason


def test_each_reason_stands_in_one_table_and_each_row_has_a_name() -> None:
    rows = Counter(name for table in TABLES for name in table.ROWS)
    assert rows == Counter(reason.name for reason in Reason)
