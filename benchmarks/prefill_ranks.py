"""What several GPUs make of one prompt: seconds of a prefill pass by tensor-parallel ranks, in process, without HTTP.

`python -m benchmarks.prefill_ranks --model FOLDER --ranks 1 2 --json FILE`. One engine after the other, each with its
defaults. A time is that of a request of one token, from its plan to the landed token: the median of ROUNDS, behind
WARM others. The prompts are random, so that the prefix cache has nothing of them.
"""

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path

from benchmarks.random_engine import provenance
from graphpod_policy import Device
from graphpod_runtime import Engine
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence

TOKENS = (64, 128, 512, 2048)
WARM, ROUNDS = 5, 20


def seconds(runner: Runner, count: int, chance: random.Random) -> float:
    """Of one request of `count` random tokens."""
    prompt = [chance.randrange(runner.vocabulary) for _ in range(count)]
    scheduler = Scheduler(runner.pages, Limits.serving(runner.config), runner.eos_ids)
    scheduler.submit(Sequence(str(chance.random()), prompt, count, 1, ignore_eos=True))
    ahead = RunAhead(scheduler, runner)
    began = time.perf_counter()
    while ahead.busy:
        ahead.turn()
    return time.perf_counter() - began


def measured(model: Path, ranks: int) -> dict[str, float]:
    """Median seconds by the prompt's tokens."""
    chance, found = random.Random(1), {}
    with Engine(model, max_batch=8, max_model_len=4096, tensor_parallel=ranks) as engine:
        for count in TOKENS:
            all_ = [seconds(engine._runner, count, chance) for _ in range(WARM + ROUNDS)]
            found[str(count)] = statistics.median(all_[WARM:])
            print(f"{ranks} ranks, {count} tokens: {found[str(count)] * 1e3:.2f} ms", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    rows = {str(ranks): measured(arguments.model, ranks) for ranks in arguments.ranks}
    first = rows[str(arguments.ranks[0])]
    for ranks, row in rows.items():
        print(ranks, "ranks:", "  ".join(f"{n} {row[n] * 1e3:.2f} ms ({first[n] / row[n]:.2f}×)" for n in row))
    if arguments.json:
        said = {"model": arguments.model.name, "secondsByRanksAndTokens": rows} | provenance(Device.Cuda)
        arguments.json.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
