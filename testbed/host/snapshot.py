"""The machine as a testbed could leave it changed: taken before and after, and compared.

Whatever belongs to other testbeds that come and go meanwhile is left out, so that several may run during the check.
"""

import os
import re
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from testbed.command import run
from testbed.host import ledger, record
from testbed.host.kernel import CGROUPS
from testbed.host.network import netns
from testbed.host.record import Record
from testbed.paths import cache_root, state_root
from testbed.process import identify

Machine = dict[str, list[str]]
GROUPS = re.compile(r"/(graphpod-|kube|k8s)")
"""In the path of a cgroup that a node, its kubelet or its containerd makes. Other programs have theirs."""


def take(ours: Collection[str]) -> Machine:
    """Sorted entries by kind. `ours` are the testbeds under observation; what any other one owns does not count."""
    others = [r for r in record.load_all() if r.name not in ours]
    seen = _read(ours)
    # Read again: one that began or ended meanwhile has its record in one of the two lists.
    others += [r for r in record.load_all() if r.name not in ours]
    theirs = re.compile("|".join(map(_mark, others)) or r"(?!)")
    return {kind: sorted(e for e in entries if not theirs.search(e)) for kind, entries in seen.items()}


def difference(before: Machine, after: Machine) -> list[str]:
    """`+ kind: entry` for what came, `- kind: entry` for what went. Empty when the machine is as it was."""
    came = [f"+ {kind}: {e}" for kind in after for e in after[kind] if e not in before.get(kind, ())]
    went = [f"- {kind}: {e}" for kind in before for e in before[kind] if e not in after.get(kind, ())]
    return [*came, *went]


def _mark(other: Record) -> str:
    """Matches what carries this testbed's name, its number's wire, or a path in its folder."""
    folder = re.escape(str(record.folder(other.name)))
    return rf"{re.escape(netns(other.name))}(?![a-z0-9-])|gp-h{other.id}\b|{folder}(?![a-z0-9-])"


def _read(ours: Collection[str]) -> Machine:
    lent = ledger.read()
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    # image builds, which no testbed makes; named namespaces, which are a kind of their own
    other = (str(cache_root()), tempfile.gettempdir(), "/run/netns")
    return {
        "links": [line.split()[0] for line in run(["ip", "-br", "link"]).splitlines()],
        "addresses": [" ".join(line.split()) for line in run(["ip", "-br", "address"]).splitlines()],
        "routes": run(["ip", "route", "show", "table", "all"]).splitlines(),
        "namespaces": [line.split()[0] for line in run(["ip", "netns", "list"]).splitlines()],
        "nft": run(["nft", "list", "ruleset"]).splitlines(),
        "mounts": [m for m in mounts if not m.startswith(other)],
        # what vanishes on the way is skipped
        "cgroups": [path for path, _, _ in os.walk(CGROUPS) if GROUPS.search(path)],
        "processes": list(_processes()),
        # while somebody borrows, the host's own values are those in the ledger
        "sysctls": [f"{name} {value}" for name, value in (lent.sysctls or ledger.values().items())],
        "folders": [f for f in ledger.FOLDERS if Path(f).exists() and f not in lent.folders],
        "borrowers": list(lent.users),
        "state": [str(folder) for name in ours if (folder := record.folder(name)).exists()],
    }


def _processes() -> Iterator[str]:
    """Those that a testbed started: they name its folder, or sit in the cgroup of one of its nodes."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or identify(int(entry.name)) is None:  # a dead one waits for its parent only
            continue
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            groups = (entry / "cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended just now
        home = next((line.split(":", 2)[2] for line in groups.splitlines() if ":/graphpod-" in line), "")
        if place := re.search(rf"{re.escape(str(state_root()))}/[^/ ]+", words):
            yield f"{words.split()[0]} of {place[0]}"
        elif home:
            yield f"{words} in cgroup {home}"
