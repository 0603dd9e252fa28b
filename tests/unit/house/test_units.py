"""What two workers of `make test` share out between them."""

import pytest

from tests.units import unit_of


@pytest.mark.parametrize("level", ["api", "sim", "e2e"])
def test_tests_that_share_a_cluster_are_one_unit(level: str) -> None:
    tests = f"tests/{level}/test_a.py::test_x", f"tests/{level}/stubs/test_b.py::test_y[a/b]"
    assert {unit_of(test) for test in tests} == {f"tests/{level}"}


def test_elsewhere_a_file_is_one_whose_fixtures_are_made_once() -> None:
    assert unit_of("tests/unit/stubs/test_proxy.py::test_x[api/v1]") == "tests/unit/stubs/test_proxy.py"
    assert unit_of("tests/contracts/test_01_break_arena.py::test_x") == "tests/contracts/test_01_break_arena.py"
