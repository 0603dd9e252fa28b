"""A test that skips fails: a missing binary is installed, or the test is left out by its mark, and never by itself."""

from collections.abc import Generator
from typing import Any

import pytest

from tests.conftest import pytest_make_collect_report, pytest_runtest_makereport


def passed_through(hook: Generator[None, Any, Any], report: Any) -> Any:
    """What pytest gets for a report of its own."""
    next(hook)
    with pytest.raises(StopIteration) as end:
        hook.send(report)
    return end.value.value


def test_a_skipped_test_fails_and_says_why(request: pytest.FixtureRequest) -> None:
    why = ("test_x.py", 1, "Skipped: no kubectl")
    report = pytest.TestReport("test_x.py::test_x", ("test_x.py", 1, "test_x"), {}, "skipped", why, "call")
    told = passed_through(pytest_runtest_makereport(request.node), report)
    assert told.outcome == "failed"
    assert "no kubectl" in told.longrepr


def test_a_skipped_module_fails_and_says_why(request: pytest.FixtureRequest) -> None:
    report = pytest.CollectReport("test_x.py", "skipped", ("test_x.py", 1, "Skipped: no torch"), [])
    told = passed_through(pytest_make_collect_report(request.node.parent), report)
    assert told.outcome == "failed"
    assert "no torch" in told.longrepr


def test_an_expected_failure_stays_one(request: pytest.FixtureRequest) -> None:
    report = pytest.TestReport("test_x.py::test_x", ("test_x.py", 1, "test_x"), {}, "skipped", None, "call")
    report.wasxfail = "known"
    assert passed_through(pytest_runtest_makereport(request.node), report).outcome == "skipped"
