"""Cells on disk, by their architecture."""

import json
from collections.abc import Iterable
from pathlib import Path

import torch

from graphpod_policy import __version__
from truth.cell import Cell

RECORDED = Path(__file__).with_name("cpu.json")


def kept() -> dict[str, tuple[Cell, ...]]:
    """All that are recorded; none where there is no such file."""
    whole = json.loads(RECORDED.read_bytes())["cells"] if RECORDED.is_file() else {}
    return {name: tuple(Cell.of(one) for one in found) for name, found in whole.items()}


def versions() -> str:
    """Of what the latest run used."""
    found: str = json.loads(RECORDED.read_bytes())["versions"]
    return found


def keep(architecture: str, found: Iterable[Cell]) -> None:
    """In the place of earlier ones of `architecture`."""
    cells = kept() | {architecture: tuple(found)}
    lines = ",\n".join(
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(one.as_dict(), ensure_ascii=False) for one in of) + "\n]"
        for name, of in sorted(cells.items())
    )
    said = json.dumps(f"graphpod {__version__}, torch {torch.__version__}")
    RECORDED.write_text(f'{{"versions": {said}, "cells": {{\n{lines}\n}}}}\n')
