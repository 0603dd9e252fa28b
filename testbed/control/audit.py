"""The audit log for people: one request a line."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READS = frozenset({"get", "list", "watch"})
PERIOD = 0.2  # s between two looks at a log that is followed


@dataclass(frozen=True)
class Filter:
    user: str | None = None  # its name, or the end of it: `operator` for system:serviceaccount:graphpod-system:operator
    writes: bool = False  # leave out get, list and watch

    def takes(self, event: dict[str, Any]) -> bool:
        name = event["user"]["username"]
        mine = self.user is None or name == self.user or name.endswith(f":{self.user}")
        return mine and not (self.writes and event["verb"] in READS)


def line(event: dict[str, Any]) -> str:
    """`14:02:07 201 admin create pods default/web`, in columns; the path where no object was asked for."""
    at = event["requestReceivedTimestamp"][11:19]
    code = event.get("responseStatus", {}).get("code", "-")
    thing = event.get("objectRef")
    what = _object(thing) if thing else event["requestURI"]
    return f"{at} {code} {event['user']['username']:<36} {event['verb']:<7} {what}"


def _object(ref: dict[str, str]) -> str:
    kind = "/".join(part for part in (ref.get("resource"), ref.get("subresource")) if part)
    return f"{kind:<28} {'/'.join(part for part in (ref.get('namespace'), ref.get('name')) if part)}".rstrip()


def lines(log: Path, wanted: Filter, *, follow: bool) -> Iterator[str]:
    """What the log holds, oldest first; with `follow` also what comes, for ever."""
    with log.open() as file:
        part = ""
        while True:
            part += file.readline()
            if part.endswith("\n"):
                event = json.loads(part)
                part = ""
                if wanted.takes(event):
                    yield line(event)
            elif not follow:
                return
            else:
                time.sleep(PERIOD)
