"""What a run lists of its dearest files."""

from tests.processor import told


def test_files_are_listed_by_the_seconds_of_all_their_tests() -> None:
    seconds = [("a.py::one", 1.0), ("b.py::one", 2.5), ("a.py::two[x]", 2.0)]
    assert list(told(seconds)) == ["processor seconds: 6, of which", "    3.0 a.py", "    2.5 b.py"]


def test_a_run_without_tests_lists_nothing() -> None:
    assert list(told([])) == []
