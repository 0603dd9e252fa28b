from pathlib import Path

import pytest

from testbed.binaries import golang, inventory
from testbed.binaries.inventory import State

ETCD, KUBECTL = golang.BY_NAME["etcd"], golang.BY_NAME["kubectl"]


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A cache that holds a program of this text under a tool's final name."""
    monkeypatch.setenv("GRAPHPOD_CACHE", str(tmp_path))

    def put(tool: golang.Tool, text: str) -> Path:
        place = golang.location(tool, "go1.26.8")
        place.parent.mkdir(parents=True)
        place.write_text(text)
        place.chmod(0o755)
        return place

    return put


def look(*tools: golang.Tool) -> list[inventory.Finding]:
    return inventory.look(tools, "go1.26.8")


def test_a_binary_that_tells_the_wanted_version_by_itself_is_right_and_costs_no_remedy(cached):
    cached(ETCD, f"#!/bin/sh\necho {ETCD.version}; echo Git SHA: 1")
    (finding,) = look(ETCD)
    assert (finding.state, finding.said) == (State.RIGHT, ETCD.version)
    assert "1 of 1 binaries tell the version they should" in inventory.table([finding])
    assert "python3 -m testbed build" not in inventory.table([finding])


def test_a_binary_of_another_version_is_wrong_and_the_remedy_removes_just_its_folder(cached):
    place = cached(ETCD, "#!/bin/sh\necho etcd Version: 3.4.0")
    (finding,) = look(ETCD)
    assert (finding.state, finding.said) == (State.WRONG, "etcd Version: 3.4.0")
    assert f"rm -r {place.parent} && python3 -m testbed build etcd" in inventory.table([finding])


@pytest.mark.parametrize("text", ["", "\x7fELF cut short", "#!/bin/sh\nexit 3"])
def test_a_binary_that_cannot_run_or_fails_is_wrong_and_does_not_end_the_table(cached, text):
    cached(ETCD, text)
    assert [f.state for f in look(ETCD, KUBECTL)] == [State.WRONG, State.MISSING]


def test_a_missing_binary_is_named_with_the_command_that_builds_it(cached):
    text = inventory.table(look(KUBECTL))
    assert "kubectl is not built: python3 -m testbed build kubectl" in text
    assert "0 of 1 binaries" in text
