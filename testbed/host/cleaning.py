"""Taking a testbed away, however it ended: found by what it owns (namespaces, cgroups), not only by what was noted."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from testbed.command import run
from testbed.errors import TestbedError
from testbed.host import ledger, network
from testbed.host.kernel import CGROUPS
from testbed.host.record import Record, folder
from testbed.process import Identity, identify, kill_all

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

    Membership proves ownership, so a shim or a container whose parent was killed is found as well. The identity is
    taken before the membership is seen: a pid that changes hands in between names no process.
    """
    if record is not None:
        yield from (c.process for c in record.components)
    namespaces = {(NETNS / n).stat().st_ino for n in network.existing(name)}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (identity := identify(int(entry.name))) is not None:
            # it ended meanwhile, or root itself may not look into it: then it is none of ours
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if (entry / "ns/net").stat().st_ino in namespaces or in_cgroup((entry / "cgroup").read_text(), name):
                    yield identity


def in_cgroup(text: str, name: str) -> bool:
    """Does a /proc/PID/cgroup put the process below the root cgroup of one of this testbed's nodes?"""
    return any(line.split(":", 2)[2].startswith(f"/{network.netns(name)}.") for line in text.splitlines())


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
                    raise TestbedError(f"cgroup {path} stays busy: its cgroup.procs names by whom") from e
                time.sleep(0.02)


def mounts_below(place: Path, mountinfo: str) -> list[str]:
    """Mount points at or below `place` of a /proc/self/mountinfo, the last one first."""
    points = [line.split()[4] for line in mountinfo.splitlines()]
    return [p for p in reversed(points) if p == str(place) or p.startswith(f"{place}/")]
