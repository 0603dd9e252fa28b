"""What testbeds borrow from the host: noted by the first, given back by the last one down.

The kubelet writes kernel settings that have no namespace, and insists on folders outside its root.
"""

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.paths import host_ledger

SYSCTLS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "net/ipv4/ip_forward",  # the testbed does not touch the host's; saved so that this stays true
)
FOLDERS = ("/var/lib/kubelet", "/var/lib/cni", "/run/containerd")  # each node mounts its own over them


@dataclass(frozen=True)
class Ledger:
    users: tuple[str, ...] = ()  # state folders of the testbeds that borrow
    sysctls: tuple[tuple[str, str], ...] = ()  # before the first of them
    folders: tuple[str, ...] = ()  # made for them

    def joined(self, user: str, sysctls: dict[str, str], missing: tuple[str, ...]) -> "Ledger":
        """With one more user. Values are taken from the first only: later ones see what the kubelet wrote."""
        if not self.users:
            return Ledger((user,), tuple(sysctls.items()), missing)
        return Ledger(tuple(sorted({*self.users, user})), self.sysctls, self.folders)

    def left(self, user: str) -> "Ledger":
        return Ledger(tuple(u for u in self.users if u != user), self.sysctls, self.folders)


def values() -> dict[str, str]:
    """The kernel's settings now."""
    return {name: (Path("/proc/sys") / name).read_text().strip() for name in SYSCTLS}


def read() -> Ledger:
    """Who borrows now, and what the host had before."""
    path = host_ledger()
    return decode(path.read_text()) if path.exists() else Ledger()


def borrow(user: Path) -> None:
    """Notes the host's values, once. Call before the first kubelet starts."""
    with _open() as (ledger, write):
        missing = tuple(f for f in FOLDERS if not Path(f).exists())
        write(ledger.joined(str(user), values(), missing))
        for folder in FOLDERS:
            Path(folder).mkdir(parents=True, exist_ok=True)


def give_back(user: Path) -> None:
    """Restores everything when no other user borrows. Nothing when `user` never did. Call after the last kubelet
    died."""
    with _open() as (ledger, write):
        rest = ledger.left(str(user))
        if rest.users or not ledger.users:
            write(rest if rest.users else Ledger())
            return
        for name, value in rest.sysctls:
            place = Path("/proc/sys") / name
            if place.read_text().strip() != value:
                place.write_text(value)
        for folder in rest.folders:
            if Path(folder).exists() and not any(Path(folder).iterdir()):
                Path(folder).rmdir()
        write(Ledger())


@contextmanager
def _open() -> Iterator[tuple[Ledger, Callable[[Ledger], None]]]:
    """The ledger under an exclusive lock, and how to write it. In /run: a reboot restores the host by itself."""
    path = host_ledger()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ledger = read()

        def write(new: Ledger) -> None:
            draft = path.with_suffix(".draft")
            draft.write_text(json.dumps(asdict(new), indent=1))
            draft.rename(path)

        yield ledger, write


def decode(text: str) -> Ledger:
    d = json.loads(text)
    pairs = tuple((name, value) for name, value in d["sysctls"])
    return Ledger(tuple(d["users"]), pairs, tuple(d["folders"]))
