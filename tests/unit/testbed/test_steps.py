import pytest

from testbed import steps
from testbed.steps import Step, Steps


def clock(*times: float):
    return iter(times).__next__


def test_each_step_is_told_as_it_ends_and_they_add_up():
    said: list[str] = []
    watch = Steps(said.append, clock(0, 1, 1, 3.5))
    with watch.step("keys"):
        pass
    with watch.step("etcd"):
        pass
    assert [" ".join(line.split()) for line in said] == ["keys 1.0 s", "etcd 2.5 s"]
    assert watch.seconds == 3.5


def test_a_step_that_fails_is_not_told_as_done():
    said: list[str] = []
    watch = Steps(said.append, clock(0, 1))
    with pytest.raises(ZeroDivisionError), watch.step("division"):
        _ = 1 / 0
    assert (said, watch.done) == ([], [])


def test_what_is_saved_beside_a_testbed_is_what_status_reads(tmp_path):
    assert steps.load(tmp_path) == []
    watch = Steps(lambda _: None, clock(0, 2))
    with watch.step("keys"):
        pass
    steps.save(watch, tmp_path)
    assert steps.load(tmp_path) == [Step("keys", 2)]
