"""The front, the wire and the command line's parser import no torch: what needs it runs in the engine process."""

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "triton", "xgrammar", "numpy")

FRONT = """
import graphpod_runtime.front as front
names = [found.name for found in pkgutil.walk_packages(front.__path__, front.__name__ + ".")]
for name in names:
    importlib.import_module(name)
assert len(names) >= 20
"""
WIRE = """
import graphpod_runtime.wire as wire
names = [found.name for found in pkgutil.walk_packages(wire.__path__, wire.__name__ + ".")]
for name in names:
    importlib.import_module(name)
assert len(names) >= 5
"""
PARSER = """
from graphpod_runtime.cli import main
for words in (["--help"], ["serve", "--help"], ["serve", "--config", "a", "--name", "b"]):
    try:
        main(words)
    except SystemExit:
        pass
"""


@pytest.mark.parametrize("program", [FRONT, WIRE, PARSER], ids=["the front", "the wire", "the parser"])
def test_a_process_of_it_alone_has_no_torch(program: str) -> None:
    ending = f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", f"import importlib, json, pkgutil, sys\n{program}\n{ending}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []
