"""How much memory the process may still take, and how much a piece of code needs at its peak. All in bytes."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def available_bytes(cgroup: Path = CGROUP, meminfo: Path = Path("/proc/meminfo")) -> int:
    """What this process can still use: the machine's available memory, or what is left of the container's limit."""
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    machine = int(fields["MemAvailable"].split()[0]) * 1024
    left = _left_of_limit(cgroup)
    return machine if left is None else min(machine, left)


def limit_bytes(cgroup: Path = CGROUP) -> int | None:
    """What the container may have in all; None without a limit."""
    for path in (cgroup / "memory.max", cgroup / "memory" / "memory.limit_in_bytes"):
        if path.is_file():
            text = path.read_text().strip()
            return None if text == "max" else int(text)
    return None


def _left_of_limit(cgroup: Path) -> int | None:
    """Limit minus use, page cache that can be dropped counted as free (cgroup v2, then v1); None without a limit."""
    for folder, limit_name, usage_name in (
        (cgroup, "memory.max", "memory.current"),
        (cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, usage, stat = folder / limit_name, folder / usage_name, folder / "memory.stat"
        if limit.is_file() and usage.is_file() and stat.is_file():
            text = limit.read_text().strip()
            if text == "max":
                return None
            stats = dict(line.split() for line in stat.read_text().splitlines())
            droppable = int(stats.get("inactive_file", stats.get("total_inactive_file", "0")))
            return max(0, int(text) - int(usage.read_text()) + droppable)
    return None


def peak_of(run: Callable[[], object]) -> int:
    """Bytes by which `run` raises the process's resident peak above what is resident before it."""
    # Where resetting the peak is not permitted, the peak since process start is the upper bound that is left.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    run()
    return max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}")
