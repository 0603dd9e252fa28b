"""The words of the benchmark of many cycles."""

from benchmarks.testbed_cycles import Cycle, Resources, line, resources, summary, trend


def cycle(up: float, files: int, *left: str) -> Cycle:
    return Cycle(up, 0.2, 0.0, list(left), Resources(files, 7, 20_000_000_000, 500_000_000, 40))


def test_a_cycle_that_left_something_says_what():
    assert line(1, 3, cycle(4.0, 1000)).endswith("left: nothing")
    assert line(2, 3, cycle(4.0, 1000, "+ links: gp-h1")).endswith("left: + links: gp-h1")


def test_the_summary_compares_the_first_cycles_with_the_last_so_that_one_odd_value_hides_nothing():
    assert trend([1, 1, 9, 1, 1, 5, 5, 5, 9, 5]) == (1, 5)
    assert trend([3]) == (3, 3)
    text = summary([cycle(4, 1000), cycle(5, 1000, "+ mounts: /x"), cycle(9, 1100)], "api")
    assert "3 cycles of api: something stayed after 1 of them" in text
    assert "open files 1000 → 1100" in text
    assert "5.0 s median, 4.0 to 9.0" in text


def test_the_machine_s_own_figures_can_be_read():
    now = resources()
    assert 0 < now.own_files <= now.open_files
    assert 0 < now.slab < now.available
