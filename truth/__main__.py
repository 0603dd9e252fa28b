"""`python -m truth`: runs the matrix, a line for each cell; exit status 1 with what failed listed first."""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from graphpod_policy import Device
from truth import accuracy, models
from truth.accuracy import Likelihood
from truth.axes import variants
from truth.cell import Cell, Key, Outcome
from truth.choice import sample, with_drawn_faults
from truth.jobs import run as in_processes
from truth.kept_cells import fingerprint, incomplete, keep, kept
from truth.matrix import Matrix, Tell, run
from truth.ranks.spread import Spread
from truth.report.page import PAGE, page
from truth.report.result import Result, provenance
from truth.scenarios import ASIDE, SCENARIOS

RESULTS = Path(__file__).with_name("results")
AXES = ("subject", "policy", "scenario")
MARKS = {Outcome.Passed: "✓", Outcome.Failed: "✗", Outcome.Refused: "·"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the arguments ask for; returns the exit status."""
    options = _options(arguments)
    if options.page is not None:
        _write_page(options.page or sorted(RESULTS.glob("*.json")))
        return 0
    began = time.monotonic()
    matrix = _matrix(options)
    file = options.json and incomplete(options.json)
    if file is not None and options.again:
        file.unlink(missing_ok=True)
    code = f"{fingerprint()}, {matrix.spread}"
    done = {} if file is None else _kept(file, matrix, code)

    def follow(count: int, of: int, cell: Cell) -> None:
        if file is not None:
            keep(file, cell, code)
        _tell(count, of, cell, began)

    with ProcessPoolExecutor(1, get_context("spawn")) as aside:
        # On a CPU the accuracy stand-in takes the second core.
        likelihoods = options.weights and aside.submit(accuracy.measure, options.weights, options.device, began)
        until = began + 60 * (options.minutes or math.inf)
        ran = {cell.key: cell for cell in _run(matrix.without(done), options.jobs, until, follow)}
        found = _likelihoods(likelihoods, began)
    cells = [cell for key in matrix.scenes() if (cell := ran.get(key) or done.get(key))]
    came_from = provenance(options.device, _command(options), time.monotonic() - began, matrix.spread.ranks)
    if done:
        came_from["took"] += f", and {sum(cell.seconds for cell in done.values()):.0f} s before it was ended"
    if left := len(matrix) - len(cells):
        came_from["not reached"] = f"{left} cells of {len(matrix)}"
    result = Result(options.device, came_from, tuple(cells), tuple(found), matrix.spread)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(result.as_json())
    if file is not None and not left:
        file.unlink(missing_ok=True)
    failed = result.failures()
    _summary(result, failed)
    if left:
        print(f"{left} of {len(matrix)} cells not reached in {options.minutes:g} minutes")
    return 1 if failed else 0


def _matrix(options: argparse.Namespace) -> Matrix:
    """What was asked for; a filter keeps what contains one of its words."""

    def kept(words: list[str] | None, name: str) -> bool:
        return words is None or any(word.lower() in name.lower() for word in words)

    subjects = models.subjects(options.device)
    if any("fp8" in word.lower() for word in options.subject or ()):
        subjects += models.fp8_subjects(options.device)
    scenarios = SCENARIOS
    for word, rows in ASIDE.items():
        if any(word in asked.lower() for asked in options.scenario or ()):
            scenarios += rows
    spread = _spread(options)
    if spread.ranks > 1:
        scenarios = tuple(one for one in scenarios if one.over_ranks)
    matrix = Matrix(
        options.device,
        tuple(one for one in subjects if kept(options.subject, one.name)),
        tuple(one for one in variants() if kept(options.policy, str(one))),
        tuple(one for one in scenarios if kept(options.scenario, one.name)),
        options.poison,
        spread,
    )
    if spread.ranks > 1:
        matrix, coverage = with_drawn_faults(matrix, whole=options.all)
        print(coverage)
    return matrix if options.sample is None else sample(matrix, options.sample)


def _spread(options: argparse.Namespace) -> Spread:
    """Experts are divided among the ranks of a layer: without a number of these there are as many."""
    expert: int = options.expert_parallel
    return Spread(options.tensor_parallel or expert, options.pipeline_parallel, expert)


def _kept(file: Path, matrix: Matrix, code: str) -> dict[Key, Cell]:
    """The cells of the run before this one that count, with words on the others."""
    found = kept(file, matrix, code)
    if found.cells:
        print(f"{len(found.cells)} cells are in {file}, of this code ({code}); --again runs them again")
    if found.other_code:
        print(f"{found.other_code} cells of {file} ran other code than this ({code}): they are dropped and run again")
    if found.unreadable:
        print(f"{found.unreadable} lines of {file} cannot be read, as a kill leaves the last one: they are dropped")
    return found.cells


def _run(matrix: Matrix, jobs: int, until: float, tell: Tell) -> list[Cell]:
    # A rank that ends takes the process of the first one with it; a time limit ends one.
    here = jobs == matrix.spread.ranks == 1 and until == math.inf
    return run(matrix, tell) if here else in_processes(matrix, jobs, tell, until)


def _command(options: argparse.Namespace) -> str:
    """What the reader types to see it again: `make truth` for a whole run."""
    words = ["--poison"] if options.poison else []
    words += ["--all"] if options.all else []
    words += [] if options.sample is None else ["--sample", str(options.sample)]
    words += [] if options.minutes is None else ["--minutes", f"{options.minutes:g}"]
    for name in AXES:
        chosen: list[str] = getattr(options, name) or []
        words += [f"--{name}", *(f'"{word}"' if " " in word else word for word in chosen)] if chosen else []
    spread = _spread(options).divided.items()
    ranks = [word for name, parts in spread for word in (f"--{name}-parallel", str(parts))]
    if not (words or ranks) and (options.weights or options.device is Device.Cuda):
        return "make truth" + ("" if options.device is Device.Cpu else f" DEVICE={options.device}")
    device = [] if options.device is Device.Cpu else ["--device", options.device]
    jobs = [] if options.jobs == 1 else ["--jobs", str(options.jobs)]
    return " ".join(["python -m truth", *device, *jobs, *ranks, *words])


def _likelihoods(promised: Future[list[Likelihood]] | None, began: float) -> list[Likelihood]:
    if promised is None:
        print(f"          {time.monotonic() - began:6.1f} s  accuracy: not measured, no --weights")
        return []
    return promised.result()


def _tell(done: int, of: int, cell: Cell, began: float) -> None:
    seconds = time.monotonic() - began
    left = f"{seconds / done * (of - done) / 60:3.0f} min left"
    print(f"[{done:>3}/{of}] {seconds:6.1f} s, {left}  {MARKS[cell.outcome]} {cell}: {cell.summary}", flush=True)


def _summary(result: Result, failed: list[str]) -> None:
    print()
    if failed:
        print(f"✗ {len(failed)} failed")
        print("\n".join(f"  {line}" for line in failed))
    counts = result.counts()
    print(f"{len(result.cells)} cells: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome))
    for rule, count in result.rules().most_common():
        print(f"  refused by {rule}: {count}")
    ties, tokens = result.ties(fixed=True)
    print(f"near-ties: {ties} of {tokens} tokens in fp32")
    if (rounded := result.ties(fixed=False))[1]:
        print(f"near-ties: {rounded[0]} of {rounded[1]} tokens in 16 bits")
    for one in result.accuracy:
        if one.refused:
            print(f"accuracy, {one.prefill}: refused by {one.refused}")
        elif not one.failed:
            print(f"accuracy, {one.prefill}: {one.nats / one.tokens:.6f} nats a token")


def _write_page(files: list[Path]) -> None:
    PAGE.write_text(page(Result.read(file) for file in files))
    print(f"{PAGE}: {', '.join(str(file) for file in files)}")


def _count(word: str) -> int:
    if (count := int(word)) < 1:
        raise argparse.ArgumentTypeError(f"{word} is no number of processes; give 1 or more")
    return count


def _minutes(word: str) -> float:
    if not 0 < (minutes := float(word)) < math.inf:
        raise argparse.ArgumentTypeError(f"{word} is no time to run in; give more than 0, or leave it out for no limit")
    return minutes


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.poison and (ranks := _spread(options)).ranks > 1:
        # Each cell would fail at its engine's start.
        parser.error(f"--poison is of one rank, not of {ranks}: only the first one knows which pages are free")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m truth", description=__doc__)
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.Cpu)
    parser.add_argument("--weights", type=Path, metavar="DIR", help="SmolLM2's folder, for the accuracy stand-in")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the result is written")
    parser.add_argument(
        "--page", type=Path, nargs="*", metavar="FILE", help=f"only write {PAGE} from results (truth/results)"
    )
    parser.add_argument(
        "--poison", action="store_true", help="NaN in dead pages and padded rows before every pass; of one rank"
    )
    parser.add_argument(
        "--tensor-parallel",
        type=_count,
        metavar="N",
        help="every engine but the reference over N ranks: gloo on a CPU, NCCL on N GPUs (1, or --expert-parallel)",
    )
    parser.add_argument(
        "--pipeline-parallel", type=_count, default=1, metavar="N", help="over N stages, each of these ranks (1)"
    )
    parser.add_argument(
        "--expert-parallel", type=_count, default=1, metavar="N", help="experts in N parts among those of a layer (1)"
    )
    parser.add_argument("--sample", type=_count, metavar="N", help="about so many cells, drawn by a fixed seed")
    parser.add_argument(
        "--minutes", type=_minutes, metavar="M", help="ends then, writes what it has, and counts the cells not reached"
    )
    parser.add_argument("--again", action="store_true", help="also cells that a run that was ended has left")
    parser.add_argument("--all", action="store_true", help="over ranks: each kind of fault in each row, not drawn ones")
    parser.add_argument("--jobs", type=_count, default=1, metavar="N", help="so many subjects at once (1)")
    for axis in AXES:
        parser.add_argument(f"--{axis}", nargs="*", metavar="WORD", help=f"only a {axis} whose name has one of these")
    return parser


if __name__ == "__main__":
    sys.exit(main())
