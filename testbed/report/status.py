"""What `python3 -m testbed status` says: observed here as values, formatted by `status_text`."""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from testbed.command import run
from testbed.errors import TestbedError
from testbed.host import record
from testbed.host.cleaning import cgroups
from testbed.host.network import Addresses, netns
from testbed.host.record import Component, Record
from testbed.level import Level
from testbed.process import Identity, alive, identify, rss_bytes


class State(StrEnum):
    UP = "up"
    BUSY = "busy"  # an `up` or `down` is at it
    BROKEN = "broken"  # a part is dead, or `up` was cut short


@dataclass(frozen=True)
class Running:
    component: Component
    alive: bool
    rss: int  # bytes


@dataclass(frozen=True)
class NodeView:
    name: str
    address: str
    network: str  # its pods' addresses
    pods: int  # that run
    rss: int  # bytes of all their processes
    images: tuple[str, ...] | None  # None: its containerd does not answer


@dataclass(frozen=True)
class View:
    record: Record
    state: State
    age: float | None  # s since its first component started; None when that one is dead
    components: tuple[Running, ...]
    nodes: tuple[NodeView, ...] = ()

    @property
    def addresses(self) -> Addresses:
        return self.record.addresses

    @property
    def memory(self) -> int:
        """Bytes: components, and what runs in pods."""
        return sum(c.rss for c in self.components) + sum(n.rss for n in self.nodes)

    @property
    def dead(self) -> list[str]:
        return [c.component.name for c in self.components if not c.alive]


def observe(found: Record) -> View:
    components = tuple(Running(c, alive(c.process), rss_bytes(c.process)) for c in found.components)
    if record.busy(found.name):
        state = State.BUSY
    elif found.ready and all(c.alive for c in components):
        state = State.UP
    else:
        state = State.BROKEN
    real = found.nodes if found.level is Level.NODE else 0
    nodes = tuple(_node(found, i) for i in range(1, real + 1))
    age = _age(components[0].component.process) if components and components[0].alive else None
    return View(found, state, age, components, nodes)


def _age(process: Identity) -> float:
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - process.started / os.sysconf("SC_CLK_TCK")


def _node(found: Record, index: int) -> NodeView:
    addresses = found.addresses
    running = _pods(found.name, index)
    rss = sum(rss_bytes(i) for pids in running.values() for pid in pids if (i := identify(pid)) is not None)
    images = _images(record.folder(found.name) / f"node{index}" / "containerd.sock")
    return NodeView(f"node{index}", addresses.node(index), addresses.pods(index), len(running), rss, images)


def _pods(name: str, index: int) -> dict[Path, list[int]]:
    """Process ids by pod of a node, from one hierarchy of cgroups: `memory`, or the only one of cgroup v2."""
    roots = [g for g in cgroups(name) if g.name == netns(name, index)]
    root = next((g for g in roots if g.parent.name == "memory"), next(iter(roots), None))
    found: dict[Path, list[int]] = {}
    for file in root.glob("kubepods/**/pod*/*/cgroup.procs") if root else ():
        try:
            pids = [int(pid) for pid in file.read_text().split()]
        except FileNotFoundError:
            continue  # its container ended just now
        if pids:
            found.setdefault(file.parent.parent, []).extend(pids)
    return found


def _images(socket: Path) -> tuple[str, ...] | None:
    try:
        names = run(["ctr", "-a", socket, "-n", "k8s.io", "images", "ls", "-q"], timeout=10).split()
    except TestbedError:
        return None
    return tuple(sorted(n for n in names if not n.startswith("sha256:") and "@sha256:" not in n))
