"""A seeded sample of vLLM's own tests on our engine with real weights. `make peer-suites` runs all of them."""

from pathlib import Path
from random import Random

from demo.weights import model_folder
from peers.__main__ import CAP, ENGINE, LONGER, RESULTS
from peers.refusals import refusal, refusals
from peers.result import PASSED, Result
from peers.run import run
from peers.settings import Settings
from peers.source import suites

SEED, CASES = 20261125, 3
MOST_SECONDS = 5.0
"""Of a case, when the committed result was made."""
SECONDS = 300.0


def test_a_seeded_sample_of_cases_passes(tmp_path: Path) -> None:
    draw, listed = Random(SEED), refusals()
    by_file: dict[str, list[str]] = {}
    for case in Result.read(RESULTS).cases:
        sure = case.outcome == PASSED and refusal(case.suite, case.test, listed) is None
        if case.suite == "vllm" and sure and case.seconds < MOST_SECONDS:
            by_file.setdefault(case.test.partition("::")[0], []).append(case.test)
    files = sorted(file for file, cases in by_file.items() if len(cases) >= CASES)
    file = draw.choice(files)  # one: each has an engine of its own to start
    wanted = draw.sample(by_file[file], CASES)
    cap = LONGER.get(Path(file).name, CAP)
    settings = Settings(str(model_folder(lambda line: None)), str(tmp_path), cap, ENGINE)
    found, said = run(suites()["vllm"], wanted, settings, SECONDS)
    assert {case.test: (case.outcome, case.why) for case in found} == dict.fromkeys(wanted, (PASSED, "")), said
