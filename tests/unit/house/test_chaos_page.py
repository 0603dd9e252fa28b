"""docs/reference/chaos.md tells what the table of faults and the last counts tell."""

from tests.sim.chaos import page


def test_the_page_is_that_of_the_table_and_of_the_counts() -> None:
    assert page.PAGE.read_text() == page.page(), "run .venv/bin/python -m tests.sim.chaos.page"
