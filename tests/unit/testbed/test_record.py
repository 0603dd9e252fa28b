import json
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.host import record
from testbed.host.cleaning import in_cgroup, mounts_below
from testbed.host.kernel import missing_controllers
from testbed.host.ledger import Ledger
from testbed.host.network import Family
from testbed.host.record import Component, Record
from testbed.level import Level
from testbed.process import Identity

RECORD = Record("demo", 3, Level.NODE, 1, True, (Component("etcd", Identity(1, 42, "no such boot"), "/log/etcd.log"),))


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHPOD_STATE", str(tmp_path))


def test_what_is_saved_is_what_is_read():
    record.save(RECORD)
    assert record.load("demo") == RECORD
    assert record.load_all() == [RECORD]
    assert record.load("other") is None


def test_a_record_keeps_its_family_and_one_of_ipv4_is_written_as_before_there_was_another():
    record.save(replace(RECORD, family=Family.IPV6))
    assert record.load("demo") == replace(RECORD, family=Family.IPV6)
    assert "family" not in json.loads(record.encode(RECORD))


def test_a_broken_record_is_an_error_that_says_which_file():
    (record.folder("demo")).mkdir()
    (record.folder("demo") / record.FILE).write_text("{")
    with pytest.raises(TestbedError, match=r"testbed\.json"):
        record.load("demo")


def test_two_at_the_same_testbed_are_told_of_each_other():
    with (
        record.locked("demo"),
        pytest.raises(TestbedError, match="another `up` or `down` of demo"),
        record.locked("demo"),
    ):
        pass


def test_a_testbed_at_which_somebody_works_is_seen_as_busy_without_touching_its_lock():
    assert not record.busy("demo")
    with record.locked("demo"):
        assert record.busy("demo")
        assert not record.busy("demo-2")
    assert not record.busy("demo")


def test_the_first_testbed_notes_the_host_and_the_last_one_leaves_it_restorable():
    first = Ledger().joined("a", {"kernel/panic": "1"}, ("/var/lib/kubelet",))
    both = first.joined("b", {"kernel/panic": "10"}, ())
    assert both.sysctls == (("kernel/panic", "1"),)
    assert both.left("a").users == ("b",)
    assert both.left("a").left("b") == Ledger((), (("kernel/panic", "1"),), ("/var/lib/kubelet",))


def test_joining_twice_counts_once():
    assert Ledger().joined("a", {}, ()).joined("a", {}, ()).users == ("a",)


def test_mounts_are_found_by_path_component_and_the_last_comes_first():
    points = ["/state/a", "/state/a/mounts", "/state/ab", "/state/a/mounts/node1"]
    mountinfo = "\n".join(f"{n} 1 8:1 / {p} rw - ext4 /dev/x rw" for n, p in enumerate(points))
    assert mounts_below(Path("/state/a"), mountinfo) == ["/state/a/mounts/node1", "/state/a/mounts", "/state/a"]


def test_only_members_of_this_testbed_s_own_cgroups_are_its_processes():
    of_demo = "3:memory:/graphpod-demo.1/kubepods/pod7\n0::/\n"
    assert in_cgroup(of_demo, "demo")
    assert not in_cgroup(of_demo, "dem")
    assert not in_cgroup("3:memory:/user/graphpod-demo.1\n", "demo")


def test_a_missing_cgroup_controller_is_named_with_the_command_that_mounts_it(tmp_path):
    for controller in ("cpu", "cpuacct", "cpuset", "devices", "freezer", "blkio", "pids"):
        (tmp_path / controller).mkdir()
        (tmp_path / controller / "cgroup.procs").touch()
    (lack,) = missing_controllers(tmp_path)
    assert "memory" in lack
    assert "mount -t cgroup -o memory" in lack


def test_the_unified_hierarchy_is_asked_for_its_own_controllers(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io pids\n")
    assert missing_controllers(tmp_path) == ["cgroup v2 controller memory: boot with it enabled"]


def test_the_record_is_plain_json():
    assert json.loads(record.encode(RECORD))["level"] == "node"
