"""`make families`: each causal model type of transformers through the engine, and variants of their configurations;
results, the engine's table, the page.

    python -m truth.families [--only TYPE ...] [--device cuda] [--again] [--page] [--drawn FIRST END]

`--drawn` runs other configurations, those of the numbers from FIRST up to END (`drawn.py`), and records nothing.
A type that has a result is not run again, so a run that was ended goes on; `--again` runs all. A process that says
nothing for three minutes is ended, and the next type runs in another.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from truth.families.page import write_page, write_table
from truth.families.results import RESULTS, keep, kept
from truth.families.variants import VARIANTS

SECONDS = 180
"""Of one type."""
AT_ONCE = 24
"""Types of one process: its imports take longer than most types."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m truth.families", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="TYPE", help="model types, or names of variants; default: all")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--again", action="store_true", help="also types that have a result")
    parser.add_argument("--page", action="store_true", help="only write the engine's table and the page")
    parser.add_argument(
        "--drawn", nargs=2, type=int, metavar=("FIRST", "END"), help="configurations by chance, from these numbers"
    )
    parser.add_argument("--run", nargs="+", metavar="TYPE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    results = RESULTS / f"families-{options.device}.json"
    if options.run:
        return _run(options.run, options.device)
    if options.drawn:
        return _drawn(range(*options.drawn), options.device)
    if not options.page:
        _all(options, results)
    write_table()
    write_page()
    wrong = [name for name, trial in kept(results).items() if trial["outcome"] == "Wrong"]
    print(f"wrong: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


def _all(options: argparse.Namespace, results: Path) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    done = {} if options.again else kept(results)
    names = options.only or [*sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES), *VARIANTS]
    left = [name for name in names if options.only or name not in done]
    began, ended = time.monotonic(), 0
    while left:
        part = left[:AT_ONCE]
        for trial in _in_a_process(part, options.device):
            keep(results, trial)
            ended += 1
            name = str(trial.get("variant") or trial["model_type"])
            left.remove(name)
            seconds = (time.monotonic() - began) / ended * len(left)
            said = trial["refused"] or f"{trial['prefill']}, {trial['decode']}"
            print(
                f"{ended:3}/{ended + len(left)} {name}: {trial['outcome']} ({said}); about {seconds / 60:.0f} min left",
                flush=True,
            )
    print(dict(Counter(trial["outcome"] for trial in kept(results).values())))


def _in_a_process(names: list[str], device: str) -> Iterator[dict[str, object]]:
    """The trials of the first of `names`, up to the first whose process died or took too long."""
    command = [sys.executable, "-m", "truth.families", "--device", device, "--run", *names]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    ended = 0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        while True:
            watchdog = threading.Timer(SECONDS, process.kill)
            watchdog.start()
            line = process.stdout.readline()
            watchdog.cancel()
            if not line:
                break
            if line.startswith("{"):
                ended += 1
                yield json.loads(line)
    if ended < len(names):
        because = f"its process ended with code {process.returncode}, or was ended after {SECONDS} s"
        model_type, _ = VARIANTS.get(names[ended], (names[ended], {}))
        variant = names[ended] if names[ended] in VARIANTS else ""
        named = {"model_type": model_type, "variant": variant}
        yield {**_NOTHING, **named, "outcome": "Failed", "because": because}


_NOTHING = {"row": {}, "prefill": "", "decode": "", "refused": "", "recurrent": False}


def _drawn(numbers: range, device: str) -> int:
    """Configurations of `numbers`, a line each. 1 unless each is equal, or refused by transformers itself."""
    from graphpod_policy import Device
    from truth.families.drawn import drawn, respelt
    from truth.families.trial import tried

    _quiet()
    outcomes: Counter[str] = Counter()
    for number in numbers:
        model_type, changes = drawn(number)
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / model_type
            folder.mkdir()
            trial = tried(model_type, folder, Device(device), respelt(number), **changes)
        outcomes[trial.refused or trial.outcome] += 1
        said = trial.because or f"{trial.path}, {trial.prefill}, {trial.decode}, {trial.furthest:.1e}"
        print(f"{number} {model_type}: {trial.outcome} ({said})", flush=True)
    print(dict(outcomes))
    return 0 if outcomes.keys() <= {"Equal", "Config"} else 1


def _quiet() -> None:
    """transformers warns of nothing, and draws no bars."""
    import warnings

    import transformers

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def _run(names: list[str], device: str) -> int:
    """The trials of `names`, a line of JSON for each."""
    from graphpod_policy import Device
    from truth.families.trial import tried

    _quiet()
    for name in names:
        model_type, changes = VARIANTS.get(name, (name, {}))
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / model_type
            folder.mkdir()
            trial = tried(model_type, folder, Device(device), **changes)
            print(json.dumps(asdict(trial) | {"variant": name if name in VARIANTS else ""}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
