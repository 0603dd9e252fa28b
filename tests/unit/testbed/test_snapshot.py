import pytest

from testbed.host import record, snapshot
from testbed.host.record import Record
from testbed.level import Level


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHPOD_STATE", str(tmp_path))


def take_with(seen: snapshot.Machine, monkeypatch: pytest.MonkeyPatch, meanwhile=lambda: None) -> snapshot.Machine:
    def read(_):
        meanwhile()
        return seen

    monkeypatch.setattr(snapshot, "_read", read)
    return snapshot.take(["mine"])


def test_what_other_testbeds_own_does_not_count_and_what_is_ours_does(monkeypatch):
    record.save(Record("demo", 3, Level.NODE, 1))
    record.save(Record("mine", 4, Level.NODE, 1))
    seen = {
        "links": ["gp-h3", "gp-h4", "gp-h33", "lo"],
        "cgroups": ["/sys/fs/cgroup/pids/graphpod-demo.1/kubepods", "/sys/fs/cgroup/pids/graphpod-mine.1"],
        "namespaces": ["graphpod-demo", "graphpod-demo.1", "graphpod-demo-2"],
        "state": [str(record.folder("demo")), str(record.folder("mine"))],
    }
    assert take_with(seen, monkeypatch) == {
        "links": ["gp-h33", "gp-h4", "lo"],
        "cgroups": ["/sys/fs/cgroup/pids/graphpod-mine.1"],
        "namespaces": ["graphpod-demo-2"],
        "state": [str(record.folder("mine"))],
    }


def test_a_testbed_that_begins_while_we_look_does_not_count_either(monkeypatch):
    seen = {"links": ["gp-h3"]}
    assert take_with(seen, monkeypatch, lambda: record.save(Record("late", 3, Level.API, 0))) == {"links": []}


def test_a_machine_without_other_testbeds_is_told_in_full(monkeypatch):
    assert take_with({"links": ["lo", "eth0"]}, monkeypatch) == {"links": ["eth0", "lo"]}


def test_a_difference_says_what_came_and_what_went():
    before = {"links": ["lo"], "sysctls": ["kernel/panic 0"]}
    after = {"links": ["gp-h1", "lo"], "sysctls": ["kernel/panic 10"]}
    assert snapshot.difference(before, after) == [
        "+ links: gp-h1",
        "+ sysctls: kernel/panic 10",
        "- sysctls: kernel/panic 0",
    ]
    assert snapshot.difference(before, before) == []


def test_only_groups_that_a_node_makes_count(tmp_path, monkeypatch):
    for group in ("pids/graphpod-mine.1/kubepods", "pids/kubepods", "pids/k8s.io", "pids/user.slice/session"):
        (tmp_path / "groups" / group).mkdir(parents=True)
    monkeypatch.setattr(snapshot, "CGROUPS", tmp_path / "groups")
    taken = [group.removeprefix(f"{tmp_path}/groups/") for group in snapshot.take(["mine"])["cgroups"]]
    assert taken == ["pids/graphpod-mine.1", "pids/graphpod-mine.1/kubepods", "pids/k8s.io", "pids/kubepods"]


def test_the_machine_itself_can_be_read():
    taken = snapshot.take([])
    assert any(link.startswith("lo") for link in taken["links"])
    assert taken["sysctls"]
