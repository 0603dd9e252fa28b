"""Where the ranks of an engine meet: files of one machine, and ports of the leader's where there are several."""

from dataclasses import dataclass
from pathlib import Path

from graphpod_runtime.base.leader import NOTICES, STORE, Leader


@dataclass(frozen=True, slots=True)
class Meeting:
    """As one process sees it. `folder` is of its own machine; `here` are the ranks of the leader's machine, which use
    files whatever the others do."""

    folder: Path
    leader: Leader | None = None
    here: int = 0
    """Ranks of the leader's machine; without a leader all are of one."""

    @property
    def collectives(self) -> str:
        """The URL where torch's processes find each other."""
        return f"file://{self.folder / 'meeting'}" if self.leader is None else self.leader.url(STORE)

    def orders_of(self, rank: int) -> str:
        """Where a rank has its orders from."""
        if self.leader is None or rank < self.here:
            return f"ipc://{self.folder / f'rank-{rank}'}"
        return self.leader.url(NOTICES + rank)

    def notices_of(self, rank: int) -> str:
        """Where a rank sends its notices."""
        if self.leader is None or rank < self.here:
            return f"ipc://{self.folder / 'notices'}"
        return self.leader.url(NOTICES)

    def bound(self, url: str) -> str:
        """The same at the leader's machine, which listens on all of its addresses."""
        return url if self.leader is None or url.startswith("ipc:") else f"tcp://*:{url.rpartition(':')[2]}"


def ports_behind(leader: Leader, ranks: int, here: int) -> list[int]:
    """Those behind the leader's own on which its machine listens, which has the ranks up to `here`."""
    return [leader.port + after for after in (STORE, NOTICES, *range(NOTICES + here, NOTICES + ranks))]


def ranks_of(node: int, nodes: int, ranks: int) -> range:
    """The ranks of one of several machines: consecutive, as many on each."""
    each = ranks // nodes
    return range(node * each, (node + 1) * each)
