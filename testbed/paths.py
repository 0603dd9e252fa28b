"""Where the testbed keeps things: never inside the work tree."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def cache_root() -> Path:
    """Built binaries; may be deleted at any time, the next `build` fills it again."""
    return Path(os.environ.get("GRAPHPOD_CACHE") or Path.home() / ".cache" / "graphpod")


def state_root() -> Path:
    """One folder per testbed. Not /run: Debian mounts that small and noexec, and container images live in here."""
    return Path(os.environ.get("GRAPHPOD_STATE") or "/var/lib/graphpod")


def host_ledger() -> Path:
    """What testbeds borrowed from the host: a fixed place, since all state folders share one host."""
    return Path("/run/graphpod/host.json")
