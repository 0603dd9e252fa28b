"""What `status` says of testbeds that are up, cut short, killed or not there."""

from dataclasses import replace
from pathlib import Path

import pytest

from testbed import parts
from testbed.binaries import golang
from testbed.host import record
from testbed.host.network import Addresses
from testbed.host.record import Component, Record
from testbed.level import Level
from testbed.process import Identity
from testbed.report import status, status_text
from testbed.report.status import NodeView, Running, State, View

FOLDER = Path("/state/demo")
GONE = Identity(1, 42, "no such boot")
ETCD, KUBELET = (Component(n, GONE, f"/state/demo/log/{n}.log") for n in ("etcd", "kubelet-node2"))
RECORD = Record("demo", 3, Level.NODE, 2, True, (ETCD, KUBELET))
NODES = (
    NodeView("node1", "10.200.3.11", "10.103.1.0/24", 4, 200_000_000, ("graphpod.dev/a:1", "graphpod.dev/b:1")),
    NodeView("node2", "10.200.3.12", "10.103.2.0/24", 0, 0, ("graphpod.dev/a:1",)),
)
UP = View(RECORD, State.UP, 360.0, (Running(ETCD, True, 40_000_000), Running(KUBELET, True, 80_000_000)), NODES)
BROKEN = replace(UP, state=State.BROKEN, components=(Running(ETCD, True, 40_000_000), Running(KUBELET, False, 0)))


def line(text: str, start: str) -> str:
    (found,) = (" ".join(entry.split()) for entry in text.splitlines() if entry.startswith(start))
    return found


def test_a_newcomer_on_an_empty_machine_is_told_how_to_start_and_what_each_level_is_for():
    text = status_text.overview([])
    assert "python3 -m testbed up --level api --name play" in text
    assert [line(text, level).split()[0] for level in Level] == list(Level)


def test_the_overview_has_a_line_for_each_testbed_with_all_its_memory():
    other = View(Record("play", 1, Level.API, 0, True), State.BUSY, None, ())
    text = status_text.overview([UP, other])
    assert line(text, "demo") == "demo node 2 up 6 min 320 MB https://10.200.3.1:6443"
    assert line(text, "play") == "play api - busy - - https://10.200.1.1:6443"


def test_every_level_and_every_program_has_words_of_its_own():
    assert set(parts.USES) == set(Level)
    daemons = {name for name in golang.NODE_TOOLS if name != "kubectl"} | {"containerd-node1"}
    assert all(parts.part(name).purpose and parts.part(name).listens for name in daemons)


def test_a_node_s_component_listens_at_its_own_node():
    assert parts.listens("kubelet-node2", Addresses(3)) == "10.200.3.12:10250"
    assert parts.listens("containerd-node2", Addresses(3)) == "node2/containerd.sock"
    assert parts.listens("kube-apiserver", Addresses(3)) == "https://10.200.3.1:6443"


def test_one_testbed_in_full_says_where_everything_is():
    text = status_text.detail(UP, FOLDER)
    assert text.startswith("testbed demo: level node, 2 nodes, up for 6 min, 320 MB")
    assert line(text, "etcd").startswith("etcd pid 1 40 MB 127.0.0.1:2379")
    assert line(text, "node1") == "node1 10.200.3.11 10.103.1.0/24 4 200 MB"
    assert line(text, "graphpod.dev/a:1") == "graphpod.dev/a:1 node1, node2"
    assert line(text, "graphpod.dev/b:1") == "graphpod.dev/b:1 node1"
    for way in ("BELOW /state/demo", "log/audit.log", "export KUBECONFIG=/state/demo/pki/admin.kubeconfig"):
        assert way in text
    assert "python3 -m testbed down --name demo" in text


def test_a_dead_part_is_named_in_both_tables_with_what_heals_it():
    assert "broken: kubelet-node2 dead" in status_text.overview([BROKEN])
    text = status_text.detail(BROKEN, FOLDER)
    assert "broken (kubelet-node2 dead): the next `up` or `down` cleans it" in text
    assert line(text, "kubelet-node2").startswith("kubelet-node2 dead - 10.200.3.12:10250")


def test_an_up_that_was_cut_short_is_broken_though_all_its_parts_live():
    text = status_text.detail(replace(UP, state=State.BROKEN), FOLDER)
    assert "its `up` was cut short" in text


def test_a_runtime_that_does_not_answer_hides_no_other_node_s_images():
    text = status_text.detail(replace(UP, nodes=(replace(NODES[0], images=None), NODES[1])), FOLDER)
    assert line(text, "graphpod.dev/a:1") == "graphpod.dev/a:1 node2"
    assert "node1's containerd does not answer" in text


def test_the_longest_line_fits_a_terminal_of_a_newcomer():
    assert max(map(len, status_text.overview([UP]).splitlines())) <= 110


@pytest.mark.parametrize(("ready", "state"), [(True, State.BROKEN), (False, State.BROKEN)])
def test_a_record_whose_processes_are_gone_is_broken_ready_or_not(tmp_path, monkeypatch, ready, state):
    monkeypatch.setenv("GRAPHPOD_STATE", str(tmp_path))
    found = Record("demo", 3, Level.API, 0, ready, (ETCD,))
    record.save(found)
    view = status.observe(found)
    assert (view.state, view.age, view.memory, view.dead) == (state, None, 0, ["etcd"])


def test_a_name_that_is_not_up_is_told_with_the_ones_that_are():
    text = status_text.absent("demo", ["play"])
    assert "python3 -m testbed up --name demo" in text
    assert "play" in text
