"""Mutation testing of the policy package: how many small faults its tests find. `make mutation`.

mutmut finds no tests in a tree with several source roots, so that it works on a copy of `policy/` and its tests, in
an environment of its own. Properties are tried with few examples, always the same: a mutant is killed or it is not.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks/results/policy_mutation.json"
MUTMUT = "3.8.1"
GOAL = 0.90

PROJECT = """\
[project]
name = "graphpod-policy"
version = "0"

[tool.mutmut]
source_paths = ["graphpod_policy"]
pytest_add_cli_args_test_selection = ["tests/unit/policy"]
also_copy = ["tests"]

[tool.pytest.ini_options]
addopts = "--import-mode=importlib"
pythonpath = ["."]
"""

CONFTEST = """\
import hypothesis

hypothesis.settings.register_profile("mutation", deadline=None, max_examples=25, derandomize=True, database=None)
hypothesis.settings.load_profile("mutation")
"""


def main() -> int:
    """Runs every mutant that has no result yet, writes the report; 1 when fewer than the goal are killed."""
    folder = Path(sys.argv[1])
    began = time.monotonic()
    if not (folder / "pyproject.toml").exists():
        _copy(folder)
    subprocess.run([folder / ".venv/bin/mutmut", "run", "--max-children", str(os.cpu_count())], cwd=folder, check=True)
    listed = subprocess.run(
        [folder / ".venv/bin/mutmut", "results", "--all", "true"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found = dict(re.findall(r"^\s*(\S+__mutmut_\d+): (.+)$", listed, re.MULTILINE))
    return _report(found, time.monotonic() - began)


def _copy(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    uv = [ROOT / ".venv/bin/uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, folder / ".venv"], check=True)
    wanted = [f"mutmut=={MUTMUT}", "pytest", "hypothesis"]
    locked = ["--constraint", ROOT / "locks/dev.txt"]
    python = ["--python", folder / ".venv/bin/python"]
    subprocess.run([*uv, "pip", "install", "--quiet", *python, *locked, *wanted], check=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "policy/graphpod_policy", folder / "graphpod_policy", ignore=ignored)
    shutil.copytree(ROOT / "tests/unit/policy", folder / "tests/unit/policy", ignore=ignored)
    (folder / "tests/conftest.py").write_text(CONFTEST)
    (folder / "pyproject.toml").write_text(PROJECT)


def _report(found: dict[str, str], seconds: float) -> int:
    counts = Counter(found.values())
    caught = counts["killed"] + counts["timeout"] + counts["caught by type check"]
    judged = sum(counts.values()) - counts["skipped"]
    rate = caught / judged
    report = {
        "command": "make mutation",
        "date": datetime.now(UTC).date().isoformat(),
        "mutmut": MUTMUT,
        "mutants": judged,
        "counts": dict(sorted(counts.items())),
        "killRate": round(rate, 4),
        "seconds": round(seconds),
        "survivors": sorted(name for name, status in found.items() if status in ("survived", "no tests")),
    }
    RESULT.write_text(json.dumps(report, indent=2) + "\n")
    print(f"policy: {caught} of {judged} mutants killed, {rate:.1%}; goal {GOAL:.0%}; {RESULT.relative_to(ROOT)}")
    return 0 if rate >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
