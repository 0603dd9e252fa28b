"""What the cache of binaries holds: each one asked for its version by its own flag, nothing believed by its name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from testbed.binaries import golang
from testbed.binaries.golang import Tool
from testbed.command import run
from testbed.errors import TestbedError
from testbed.report import columns

COLUMNS = ("TOOL", "WANTED", "SAID", "FAMILY", "SIZE", "BUILT IN", "STATE")
LONGEST = 60  # characters of an answer in the table
Ask = Callable[[Tool, Path], str]


class State(StrEnum):
    RIGHT = "ok"
    WRONG = "wrong"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    tool: Tool
    path: Path
    state: State
    said: str  # the line of its answer that names a version; empty when it is missing
    size: int  # bytes
    seconds: float | None  # that its build took


def ask(tool: Tool, path: Path) -> str:
    """What the binary prints when asked for its version, or why it cannot be run."""
    try:
        return run([path, *tool.version_args], timeout=60)
    except TestbedError as e:
        return str(e).splitlines()[-1]  # the program's own last word, or why it is none


def look(tools: Sequence[Tool], go: str, ask: Ask = ask) -> list[Finding]:
    return [_look(tool, golang.location(tool, go), ask) for tool in tools]


def _look(tool: Tool, path: Path, ask: Ask) -> Finding:
    if not path.exists():
        return Finding(tool, path, State.MISSING, "", 0, None)
    said = ask(tool, path)
    state = State.RIGHT if tool.version in said else State.WRONG
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["(nothing)"]
    shown = next((line for line in lines if tool.version in line), lines[0])
    return Finding(tool, path, state, shown[:LONGEST], path.stat().st_size, golang.build_seconds(path))


def table(findings: Sequence[Finding]) -> str:
    """One line a binary; below it, what to do about each that is not as it should be."""
    rows = [
        (
            f.tool.name,
            f.tool.version,
            f.said or "-",
            f.tool.family,
            columns.megabytes(f.size),
            "-" if f.seconds is None else f"{f.seconds:.0f} s",
            f.state,
        )
        for f in findings
    ]
    bad = [f for f in findings if f.state is not State.RIGHT]
    return "\n".join([columns.align(COLUMNS, rows), "", *map(_remedy, bad), _summary(findings, len(bad))])


def _remedy(finding: Finding) -> str:
    build = f"python3 -m testbed build {finding.tool.name}"
    if finding.state is State.MISSING:
        return f"{finding.tool.name} is not built: {build}"
    return f"{finding.tool.name} is not what its folder says: rm -r {finding.path.parent} && {build}"


def _summary(findings: Sequence[Finding], bad: int) -> str:
    size = columns.megabytes(sum(f.size for f in findings))
    return f"{len(findings) - bad} of {len(findings)} binaries tell the version they should, {size} together"
