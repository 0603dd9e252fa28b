"""What a server holds: requests, KV pages, open files, memory."""

import json
import re
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

GAUGES = ("graphpod_requests_running", "graphpod_requests_waiting", "graphpod_kv_cache_usage_ratio")
TRIES = 600
"""Questions until a server must hold nothing of requests; each takes some milliseconds, and more on a busy machine."""


@dataclass(frozen=True, slots=True)
class Held:
    """Open files and resident bytes of all its processes."""

    files: int
    memory: int


def processes(pid: int) -> list[int]:
    """A process and those below it."""
    children = [int(entry.parent.name) for entry in Path("/proc").glob("[0-9]*/stat") if _parent(entry) == pid]
    return [pid, *(one for child in children for one in processes(child))]


def held(pid: int) -> Held:
    """What the server of this process holds now."""
    every = processes(pid)
    files = sum(len(list(Path(f"/proc/{one}/fd").iterdir())) for one in every)
    memory = 0
    for one in every:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{one}/status").read_text())
        memory += int(found[1]) << 10 if found else 0
    return Held(files, memory)


def left(url: str) -> dict[str, float]:
    """What the server still holds of requests, by gauge; empty where it holds nothing."""
    text = _get(f"{url}/metrics")
    found = {
        name: float(value) for name, value in re.findall(r"^(graphpod_\w+)(?:{[^}]*})? (\S+)$", text, re.MULTILINE)
    }
    said = {name: found[name] for name in GAUGES if found[name]}
    load = json.loads(_get(f"{url}/load"))["server_load"]
    return said | ({"server_load": load} if load else {})


def wait_until_idle(url: str, also: Callable[[], bool] = lambda: True) -> dict[str, float]:
    """What is left after TRIES questions; empty as soon as nothing is, and `also` holds."""
    said: dict[str, float] = {}
    for _ in range(TRIES):
        said = left(url)
        if not said and also():
            return {}
    return said or {"also": 1.0}


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return -1


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return answer.read().decode()
