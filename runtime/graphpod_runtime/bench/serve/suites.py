"""Rows that are measured one after another: named suites, and files of rows.

A row is a name and the words of a load, as on the command line. Lines that begin with # are comments.
"""

import shlex
from pathlib import Path
from typing import NamedTuple

from graphpod_runtime.bench.serve.options import read_words

GOODPUT = "--slo ttft=200ms,tpot=20ms"

H200 = """
idle-ttft-64       --concurrency 1 --requests 30 --input 64 --output 1
idle-ttft-512      --concurrency 1 --requests 30 --input 512 --output 1
idle-ttft-2048     --concurrency 1 --requests 30 --input 2048 --output 1
one-stream         --concurrency 1 --requests 4 --input 64 --output 256
closed-32          --concurrency 32 --requests 320 --input 512 --output 128 {goodput}
closed-64          --concurrency 64 --requests 256 --input 128 --output 256 {goodput}
poisson-mix        --rate {rate} --requests 1000 --input 32-1023 --output 16-255 {goodput}
shared-prefix      --concurrency 8 --requests 240 --prefix 1536 --input 64 --output 32
greedy-32          --concurrency 32 --requests 512 --input 128 --output 128
sampled-32         --concurrency 32 --requests 512 --input 128 --output 128 --temperature 0.8 --top-p 0.95
schema-32          --concurrency 32 --requests 512 --input 128 --output 128 --json-schema
schema-ttft-512    --concurrency 1 --requests 30 --input 512 --output 1 --json-schema
"""
H200_LARGE = """
long-prompts       --concurrency 16 --requests 16 --input 512 --output 2048 --also '--rate 0.5 --arrivals constant --input 8192 --output 1'
context-32k-1      --concurrency 1 --requests 2 --input 32000 --output 256
context-32k-8      --concurrency 8 --requests 8 --input 32000 --output 512
"""  # noqa: E501 (one row is one line)
SUITES = {
    "h200-0.6b": H200.format(rate=30, goodput=GOODPUT),
    "h200-8b": H200.format(rate=15, goodput=GOODPUT) + H200_LARGE,
    "cpu": """
one-stream         --concurrency 1 --requests 4 --input 32 --output 32
closed-4           --concurrency 4 --requests 16 --input 64 --output 32
schema-4           --concurrency 4 --requests 16 --input 64 --output 32 --json-schema
ttft               --concurrency 1 --requests 20 --input 64 --output 1
schema-ttft        --concurrency 1 --requests 20 --input 64 --output 1 --json-schema
second-turn        --concurrency 1 --requests 5 --turns 2 --input 500 --next-input 20 --output 8
""",
}


class SuiteInvalid(ValueError):
    """No suite of that name, and no file; or a line that is no row."""


class Words(NamedTuple):
    """One row before it is measured."""

    name: str
    words: str


def suite(name: str) -> list[Words]:
    """The rows of a named suite, or of the file of that path. SuiteInvalid names the line that is wrong."""
    if name in SUITES:
        return rows_of(SUITES[name], name)
    path = Path(name)
    try:
        return rows_of(path.read_text(), name)
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(SUITES)
        raise SuiteInvalid(f"{name} is neither a suite ({known}) nor a file that can be read: {error}") from error


def rows_of(text: str, where: str) -> list[Words]:
    """The rows of a text; `where` is its name in messages."""
    rows: list[Words] = []
    for at, line in enumerate(text.splitlines(), start=1):
        name, _, words = line.strip().partition(" ")
        if not name or name.startswith("#"):
            continue
        try:
            read_words(words)
        except ValueError as error:
            raise SuiteInvalid(f"{where}, line {at}: {error}") from error
        if any(row.name == name for row in rows):
            raise SuiteInvalid(f"{where}, line {at}: the name {name!r} is taken; give every row its own")
        rows.append(Words(name, shlex.join(shlex.split(words))))
    if not rows:
        raise SuiteInvalid(f"{where} has no rows; write one a line: NAME --concurrency 8 …")
    return rows
