"""`python -m peers`: runs the suites against our server; exit status 1 if a test fails that is not refused.

It takes up to an hour on two cores. A part: `python -m peers --suite vllm --file test_chat.py` (its rows take the place
of their earlier ones).
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from demo.weights import model_folder
from peers import inference_perf, provider_check
from peers.page import PAGE, page
from peers.refusals import refusals
from peers.result import FAILED, Result, judged, missing, provenance
from peers.run import Case, run
from peers.settings import Settings
from peers.source import suites

RESULTS = Path("benchmarks/results/peer_suites.json")
ENGINE = ("--prefill", "Disabled", "--decode", "Disabled")
"""A start of 10 s instead of a minute, for twenty starts. The truth matrix compares graphs with this."""
CAPS: dict[str, int] = {"vllm": 48, "openai": 16, "provider-check": 64}
"""Most tokens of an answer."""
UNCAPPED = ("test_completion_with_function_calling.py", "test_structured_output.py")
"""Answers that are JSON end by themselves, and are wrong before that."""
FILE_SECONDS = 600.0
"""For one file; what it does not come to in this time has failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the arguments ask for; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.page:
        PAGE.write_text(page(Result.read(options.json)))
        return 0
    began = time.monotonic()
    weights = model_folder(lambda line: print(line, file=sys.stderr))
    sources = {name: f"{one.package} {one.version}" for name, one in suites().items()}
    sources |= {"inference-perf": inference_perf.SOURCE, "provider-check": provider_check.SOURCE}
    cases: list[Case] = []
    for name in options.suite or sources:
        cases += _one(name, str(weights), options.file)
    listed = refusals()
    found = [judged(case, listed) for case in cases]
    if not options.file:
        for name in options.suite or sources:
            found += missing(name, [case for case in cases if case.suite == name], listed)
    earlier = Result.read(options.json).cases if options.json.exists() else ()
    done = {(case.suite, case.test) for case in found}
    whole = {case.suite for case in found} if not options.file else set()
    kept = [case for case in earlier if case.suite not in whole and (case.suite, case.test) not in done]
    ordered = sorted([*kept, *found], key=lambda case: (list(sources).index(case.suite), case.test))
    result = Result(provenance("make peer-suites", time.monotonic() - began), sources, tuple(ordered))
    options.json.write_text(result.as_json())
    PAGE.write_text(page(result))
    failed = [case for case in found if case.outcome == FAILED]
    for case in failed:
        print(f"failed: {case.suite} {case.test}: {case.why[:200]}")
    print(f"{len(found)} tests, {len(failed)} failed; {options.json}, {PAGE}")
    return 1 if failed or not found else 0


def _one(name: str, weights: str, files: list[str] | None) -> list[Case]:
    """The cases of one suite."""
    with tempfile.TemporaryDirectory(prefix="graphpod-peers-") as folder:
        settings = Settings(weights, folder, CAPS.get(name), ENGINE)
        own: dict[str, Callable[[Settings], list[Case]]] = {
            "inference-perf": inference_perf.run,
            "provider-check": provider_check.run,
        }
        if name in own:
            return own[name](settings)
        cases: list[Case] = []
        suite = suites()[name]
        for file in suite.files:
            if files and not any(word in file for word in files):
                continue
            cap = None if file.endswith(UNCAPPED) else settings.cap
            found, said = run(suite, [file], Settings(weights, folder, cap, ENGINE), FILE_SECONDS)
            print(
                f"{name} {file}: {sum(case.outcome == 'passed' for case in found)} of {len(found)} passed", flush=True
            )
            cases += found or [Case(name, f"{file}::(none)", FAILED, f"no test ran: {said[-300:]}", 0.0)]
        return cases


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m peers", description="run test suites of other projects")
    parser.add_argument("--suite", action="append", help="this suite alone; may be repeated")
    parser.add_argument("--file", action="append", help="files whose path contains this; may be repeated")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the result (default: %(default)s)")
    parser.add_argument("--page", action="store_true", help="only write the page, from the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
