"""What the kernel must offer: tried out in throw-away namespaces, so that a lack is named before anything starts."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError
from testbed.level import Level

CGROUPS = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
V2_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")

_NAT = "add table ip t; add chain ip t c { type nat hook postrouting priority 100; }; add rule ip t c "


@dataclass(frozen=True)
class Feature:
    what: str
    trial: tuple[str, ...]  # succeeds where the kernel has it
    options: str  # kernel configuration and module names
    level: Level = Level.API


def _inside(*argv: str) -> tuple[str, ...]:
    return ("unshare", "--net", "--mount", *argv)


FEATURES = (
    Feature("network namespaces", _inside("true"), "CONFIG_NET_NS"),
    Feature("veth links", _inside("ip", "link", "add", "try0", "type", "veth", "peer", "name", "try1"), "CONFIG_VETH"),
    Feature("bridges", _inside("ip", "link", "add", "try0", "type", "bridge"), "CONFIG_BRIDGE, modprobe bridge"),
    Feature("nf_tables with NAT", _inside("nft", _NAT + "masquerade"), "CONFIG_NFT_MASQ, CONFIG_NFT_NAT", Level.NODE),
    Feature("nf_tables numgen", _inside("nft", _NAT + "numgen random mod 2 0 drop"), "CONFIG_NFT_NUMGEN", Level.NODE),
    Feature("overlay file system", ("grep", "-qw", "overlay", "/proc/filesystems"), "modprobe overlay", Level.NODE),
)


def check_root() -> None:
    if os.geteuid() != 0:
        raise TestbedError("the testbed makes network namespaces and cgroups, which needs root: run it with sudo")


def check(level: Level) -> None:
    """Raises `TestbedError` naming every lack and its remedy. Needs root."""
    lacks = [lack for f in FEATURES if f.level is Level.API or level is Level.NODE if (lack := _lack(f))]
    if level is Level.NODE:
        lacks += missing_controllers(CGROUPS)
    if lacks:
        raise TestbedError("this kernel lacks what the testbed needs:\n" + "\n".join(f"  - {lack}" for lack in lacks))


def _lack(feature: Feature) -> str:
    try:
        done = subprocess.run(feature.trial, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        return f"{feature.what}: cannot be tried, {feature.trial[0]} is not installed (`python3 -m testbed build` does)"
    said = (done.stderr.strip().splitlines() or ["not there"])[0]
    return "" if done.returncode == 0 else f"{feature.what}: {said}. Kernel: {feature.options}"


def unified(root: Path = CGROUPS) -> bool:
    """Is this cgroup v2?"""
    return (root / "cgroup.controllers").exists()


def missing_controllers(root: Path) -> list[str]:
    if unified(root):
        have = (root / "cgroup.controllers").read_text().split()
        return [f"cgroup v2 controller {c}: boot with it enabled" for c in V2_CONTROLLERS if c not in have]
    return [
        f"cgroup v1 controller {c}: mount it with `mkdir -p {root}/{c}; mount -t cgroup -o {c} {c} {root}/{c}`"
        for c in V1_CONTROLLERS
        if not (root / c / "cgroup.procs").exists()
    ]
