"""The table of `graphpod models`: what lies on the claims of a namespace, and which services use it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graphpod_operator.cache.claim import Claim
from graphpod_operator.cache.service import Service
from graphpod_operator.intent.asked_downloads import downloads
from graphpod_policy.units import size

TITLES = ("NAMESPACE", "CLAIM", "FOLDER", "URI", "COMMIT", "SIZE", "USED BY")
COMMIT = 19
"""Characters of a commit or digest in the table: `sha256:` and twelve more."""
UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One folder of a claim. `bytes` is None where it is not complete."""

    namespace: str
    claim: str
    folder: str
    uri: str
    commit: str
    bytes: int | None
    used_by: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """As the table shows it."""
        amount = "not complete" if self.bytes is None else size(self.bytes) if self.bytes else UNKNOWN
        used = ", ".join(self.used_by) or UNKNOWN
        texts = (self.uri or UNKNOWN, self.commit[:COMMIT] or UNKNOWN, amount, used)
        return (self.namespace, self.claim, self.folder, *map(_printable, texts))


def rows(claims: Iterable[Claim], services: Iterable[Service]) -> list[ModelRow]:
    """The complete folders, and those that a service waits for, in order."""
    users: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for service in services:
        for one in downloads(service.key.name, service.spec):
            place = service.key.namespace, one.claim, one.folder
            users.setdefault(place, []).append((service.key.name, one.uri.text))
    stored = {
        (claim.child.namespace, claim.child.name, folder): one
        for claim in claims
        for folder, one in claim.stored.items()
    }
    found = []
    for place in sorted({*users, *stored}):
        here, used = stored.get(place), users.get(place, [])
        names = tuple(sorted(name for name, _ in used))
        uri = here.uri if here is not None else used[0][1]
        commit, amount = (here.commit, here.bytes) if here is not None else ("", None)
        found.append(ModelRow(*place, uri, commit, amount, names))
    return found


def text(found: Sequence[ModelRow], with_namespace: bool) -> str:
    """The table, ending with a newline."""
    if not found:
        return "No claim has downloaded weights.\n"
    first = 0 if with_namespace else 1
    cells = [row[first:] for row in (TITLES, *(one.cells for one in found))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "".join(f"{line}\n" for line in _lines(cells, widths))


def as_list(found: Iterable[ModelRow]) -> list[dict[str, Any]]:
    """The same as plain values."""
    return [{("usedBy" if name == "used_by" else name): value for name, value in asdict(row).items()} for row in found]


def _lines(cells: Iterable[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for row in cells:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _printable(text: str) -> str:
    """An annotation's text without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
