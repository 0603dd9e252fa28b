"""`python -m peers`: runs the suites against our server; exit status 1 if a test fails that is not refused.

It takes up to an hour on two cores. A part: `python -m peers --suite vllm --file test_chat.py` (its rows take the place
of their earlier ones). The result is written after each file.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from demo.weights import model_folder
from peers import inference_perf, provider_check
from peers.page import PAGE, page
from peers.refusals import refusals
from peers.result import FAILED, PASSED, Result, judged, missing, provenance
from peers.run import Case, run
from peers.settings import Settings
from peers.source import suites

RESULTS = Path("benchmarks/results/peer_suites.json")
ENGINE = ("--prefill", "Disabled", "--decode", "Disabled")
"""A start of 10 s instead of a minute, for twenty starts. The truth matrix compares graphs with this."""
CAP, PROVIDER_CAP = 24, 64
"""Most tokens of an answer, for most files, and for provider-check."""
LONGER: dict[str, int | None] = {
    "test_completion_with_function_calling.py": 200,
    "test_structured_output.py": 200,
    "test_chat.py": 64,
    "test_completion.py": 64,
    "test_basic.py": 400,
    "test_simple.py": 400,
    "test_stateful.py": 400,
    "test_messages.py": 400,
    "test_root_path.py": 100,
    "test_chat_echo.py": 100,
    "test_return_token_ids.py": 64,
}
"""For files that assert how an answer ends, or that it is JSON."""
FILE_SECONDS = 600.0
"""For one file; what it does not come to in this time has failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the arguments ask for; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.page:
        PAGE.write_text(page(Result.read(options.json)))
        return 0
    began = time.monotonic()
    weights = str(model_folder(lambda line: print(line, file=sys.stderr)))
    found: list[Case] = []
    for name in options.suite or _sources():
        cases: list[Case] = []
        for some in _parts(name, weights, options.file):
            cases += [judged(case, refusals()) for case in some]
            _write(options.json, [*found, *cases], began)
        found += [*cases, *(missing(name, cases, refusals()) if not options.file else ())]
    result = _write(options.json, found, began)
    if options.json == RESULTS:
        PAGE.write_text(page(result))
    failed = [case for case in found if case.outcome == FAILED]
    for case in failed:
        print(f"failed: {case.suite} {case.test}: {case.why[:200]}")
    print(f"{len(found)} tests, {len(failed)} failed; {options.json}, {PAGE}")
    return 1 if failed or not found else 0


def _sources() -> dict[str, str]:
    """Name and version of every suite, in the order of the page."""
    packages = {name: f"{one.package} {one.version}" for name, one in suites().items()}
    return packages | {"inference-perf": inference_perf.SOURCE, "provider-check": provider_check.SOURCE}


def _write(file: Path, found: list[Case], began: float) -> Result:
    """Adds cases to the earlier result; they take the place of all that it has of their files."""
    sources = _sources()
    files = {(case.suite, _file(case)) for case in found}
    earlier = Result.read(file).cases if file.exists() else ()
    kept = [case for case in earlier if (case.suite, _file(case)) not in files]
    ordered = sorted([*kept, *found], key=lambda case: (list(sources).index(case.suite), case.test))
    result = Result(provenance("make peer-suites", time.monotonic() - began), sources, tuple(ordered))
    file.write_text(result.as_json())
    return result


def _file(case: Case) -> str:
    return case.test.partition("::")[0]


def _parts(name: str, weights: str, files: list[str] | None) -> Iterator[list[Case]]:
    """The cases of one suite, a file at a time."""
    own: dict[str, Callable[[Settings], list[Case]]] = {
        "inference-perf": inference_perf.run,
        "provider-check": provider_check.run,
    }
    with tempfile.TemporaryDirectory(prefix="graphpod-peers-") as folder:
        if name in own:
            yield own[name](Settings(weights, folder, PROVIDER_CAP, ENGINE))
            return
        suite = suites()[name]
        for file in suite.files:
            if files and not any(word in file for word in files):
                continue
            cap = LONGER.get(Path(file).name, CAP)
            found, said = run(suite, [file], Settings(weights, folder, cap, ENGINE), FILE_SECONDS)
            print(f"{name} {file}: {sum(case.outcome == PASSED for case in found)} of {len(found)} passed", flush=True)
            yield found or [Case(name, f"{file}::(none)", FAILED, f"no test ran: {said[-300:]}", 0.0)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m peers", description="run test suites of other projects")
    parser.add_argument("--suite", action="append", help="this suite alone; may be repeated")
    parser.add_argument("--file", action="append", help="files whose path contains this; may be repeated")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the result (default: %(default)s)")
    parser.add_argument("--page", action="store_true", help="only write the page, from the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
