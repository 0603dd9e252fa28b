"""The marks of the benchmark of first tokens: what they wrap is there, and parts follow from them."""

import importlib
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from benchmarks.first_token import marks
from benchmarks.first_token.marks import MARKS, NEITHER, PARTS, parts_of
from graphpod_runtime.front.server.connection import Connection


def test_every_part_ends_with_a_mark_of_something_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that has another name would be left out without a word, as in an earlier commit."""
    named: list[str | None] = []

    def around(module: str, name: str, before: str | None = None, after: str | None = None, of: Any = None) -> None:
        reduce(getattr, name.split("."), importlib.import_module(module))
        named.extend((before, after))

    monkeypatch.setattr(Connection, "connection_made", Connection.connection_made)
    monkeypatch.setattr(marks, "_file", 0)
    monkeypatch.setattr(marks, "_around", around)
    for wrap in (marks.wrap_front, marks.wrap_wire, marks.wrap_engine):
        wrap()
    assert {name for name in named if name} == set(PARTS) - {"event", "departure"}


def test_parts_are_from_mark_to_mark_and_a_missing_one_counts_to_the_next(tmp_path: Path) -> None:
    def line(at: int, name: str) -> str:
        return f"{at} {MARKS.index(name)} 0\n"

    file = tmp_path / "marks"
    earlier = line(1_000, "arrival")
    own = [line(11_000, "arrival"), line(13_000, "body"), line(14_000, "wait"), line(18_000, "wait")]
    # The front's last mark of the request before, and an engine that read before the front had noted that it wrote.
    others = [line(10_500, "event"), line(13_500, "wire to engine"), line(13_600, "wire send")]
    device = f"17_000 {NEITHER} 2500\n".replace("_", "")
    file.write_text(earlier + "".join([*own, *others, device]))
    parts, passes = parts_of(file, len(earlier), [(10_000, 20_000)])
    assert parts == {
        "arrival": 1.0, "body": 2.0, "wire send": 0.6, "wire to engine": 0.0, "wait": 4.4, "departure": 2.0
    }  # fmt: skip
    assert sum(parts.values()) == pytest.approx(10.0)
    assert passes == 2.5
