"""What a testbed remembers on disk, written before the machine is touched, so that a killed one can be cleaned."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from testbed.errors import TestbedError
from testbed.host.network import Addresses, Family
from testbed.level import Level
from testbed.paths import state_root
from testbed.process import Identity, alive

FILE = "testbed.json"
MOMENT = 0.5  # s; what a killed holder had begun to start keeps its lock until it has started


@dataclass(frozen=True)
class Component:
    name: str
    process: Identity
    log: str


@dataclass(frozen=True)
class Record:
    name: str
    id: int
    level: Level
    nodes: int
    ready: bool = False  # `up` came to its end
    components: tuple[Component, ...] = ()
    family: Family = Family.IPV4

    @property
    def addresses(self) -> Addresses:
        return Addresses(self.id, self.family)

    def with_component(self, component: Component) -> "Record":
        """With this one, instead of an earlier one of its name."""
        others = (one for one in self.components if one.name != component.name)
        return replace(self, components=(*others, component))

    def dead(self) -> list[Component]:
        return [c for c in self.components if not alive(c.process)]


def folder(name: str) -> Path:
    return state_root() / name


def encode(record: Record) -> str:
    raw = asdict(record)
    if record.family is Family.IPV4:  # checkouts of before there was another read the same folder
        del raw["family"]
    return json.dumps(raw, indent=1)


def decode(text: str) -> Record:
    d = json.loads(text)
    components = tuple(Component(c["name"], Identity(**c["process"]), c["log"]) for c in d.pop("components"))
    family = Family(d.pop("family", Family.IPV4))
    return Record(**{**d, "level": Level(d["level"]), "family": family}, components=components)


def save(record: Record) -> None:
    place = folder(record.name)
    place.mkdir(parents=True, exist_ok=True)
    draft = place / f".{FILE}"
    draft.write_text(encode(record))
    draft.rename(place / FILE)


def load(name: str) -> Record | None:
    """None when there is no such testbed. An unreadable file is an error: it names what runs."""
    path = folder(name) / FILE
    try:
        return decode(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as e:
        raise TestbedError(
            f"{path} cannot be read ({e}): delete that one file, then `python3 -m testbed down --name {name}`"
        ) from e


def load_all() -> list[Record]:
    names = sorted(p.parent.name for p in state_root().glob(f"*/{FILE}"))
    return [record for name in names if (record := load(name)) is not None]


@contextmanager
def locked(what: str, *, patience: float = MOMENT) -> Iterator[None]:
    """One holder at a time: the next waits for `patience` s, then fails. The kernel frees a killed holder's lock."""
    place = state_root() / "locks"
    place.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience
    with (place / what).open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TestbedError(f"another `up` or `down` of {what} is running: wait for it, or end it") from None
                time.sleep(0.02)
        yield


def busy(name: str) -> bool:
    """Does an `up` or `down` hold this testbed's lock? Read from the kernel's list: trying it could fail theirs."""
    place = state_root() / "locks" / name
    if not place.exists():
        return False
    inode = place.stat().st_ino
    return any(f":{inode} " in line and "FLOCK" in line for line in Path("/proc/locks").read_text().splitlines())
