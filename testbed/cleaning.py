"""Taking a testbed away, however it ended: found by what it owns (namespaces, cgroups), not only by what was noted."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from testbed import ledger, network
from testbed.command import run
from testbed.errors import TestbedError
from testbed.kernel import CGROUPS
from testbed.process import Identity, identify, kill_all
from testbed.record import Record, folder

NETNS = Path("/run/netns")


def clean(name: str, record: Record | None) -> None:
    """Processes, mounts, namespaces, cgroups, kernel settings, files: in that order. Does nothing where nothing is."""
    kill_all(lambda: _processes(name, record))
    place = folder(name)
    for mount in mounts_below(place, Path("/proc/self/mountinfo").read_text()):
        run(["umount", mount])
    if record is not None:
        network.cut(record.id)
    network.tear_down(name)
    for group in cgroups(name):
        _remove_cgroup(group)
    ledger.give_back(place)
    if place.exists():
        shutil.rmtree(place)


def left_over(name: str) -> bool:
    """Is there anything of this testbed, noted or not?"""
    return folder(name).exists() or bool(network.existing(name)) or any(True for _ in cgroups(name))


def _processes(name: str, record: Record | None) -> Iterator[Identity]:
    """Everything that runs for it: noted components, members of its network namespaces, members of its cgroups.

    Membership proves ownership, so a shim or a container whose parent was killed is found as well.
    """
    if record is not None:
        yield from (c.process for c in record.components)
    namespaces = {_inode(NETNS / n) for n in network.existing(name)} - {None}
    pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()] if namespaces else []
    members = [pid for pid in pids if _inode(Path(f"/proc/{pid}/ns/net")) in namespaces]
    for group in cgroups(name):
        members += [int(pid) for procs in group.rglob("cgroup.procs") for pid in _lines(procs)]
    yield from (identity for pid in set(members) if (identity := identify(pid)) is not None)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None  # ended meanwhile, or a kernel thread


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []  # the group went with its last process


def cgroups(name: str) -> Iterator[Path]:
    """The root cgroups of this testbed's nodes, in every hierarchy."""
    yield from CGROUPS.glob(f"{network.netns(name)}.*")
    yield from CGROUPS.glob(f"*/{network.netns(name)}.*")


def _remove_cgroup(group: Path, limit: float = 10.0) -> None:
    deadline = time.monotonic() + limit
    for path, _, _ in os.walk(group, topdown=False):
        while Path(path).exists():
            try:
                Path(path).rmdir()
            except OSError as e:  # busy until the kernel has buried the last process
                if time.monotonic() > deadline:
                    raise TestbedError(f"cgroup {path} stays busy: {_lines(Path(path) / 'cgroup.procs')}") from e
                time.sleep(0.02)


def mounts_below(place: Path, mountinfo: str) -> list[str]:
    """Mount points at or below `place` of a /proc/self/mountinfo, the last one first."""
    points = [line.split()[4] for line in mountinfo.splitlines()]
    return [p for p in reversed(points) if p == str(place) or p.startswith(f"{place}/")]
