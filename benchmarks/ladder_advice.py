"""Recorded loads, and whether the padding that `graphpod advise` promises is what the advised ladders really pad.

Each load is a list of requests, drawn by a seed: the turn of the engine at which one arrives, tokens of its prompt, and
tokens of its answer. A small random model serves it on the CPU by the real scheduler, runner and recorder. The advice
is read from the text of `/metrics`, as the command reads it. Then the load runs again on the advised ladders.
Turns, not clocks, decide what is in a batch, so both runs have the same passes.

    python -m benchmarks.ladder_advice       # writes benchmarks/results/ladder_advice.json and prints the table
"""

import argparse
import json
import random
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from graphpod_operator.observe.ladder_use import phase_uses, samples
from graphpod_policy import EngineConfig, Features, GraphRequest, ModelConfig, Phase, Policy, resolve
from graphpod_policy.ladder.advice import LEAST_PASSES, LadderAdvice, LadderUse, Verdict, advice
from graphpod_policy.ladder.ladder import Ladder
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.front.metrics.exporter import Exporter, FrontMetrics
from graphpod_runtime.front.status import Status
from truth import models

RESULTS = Path(__file__).parent / "results" / "ladder_advice.json"
CHUNK = 128
CONTEXT = 192
BATCH = 16
DEFAULT: dict[Phase, Ladder] = {
    Phase.Prefill: (4, 8, 12, 16, 20, 24, 28, 32, 48, 64, 80, 96, 112, CHUNK),
    Phase.Decode: (1, 2, 4, 8, BATCH),
}
"""The default ladders of a CPU up to CHUNK tokens and BATCH sequences."""
SUBJECT = replace(
    models.small("LlamaForCausalLM"),
    name="Llama, one layer",
    config=models.small("LlamaForCausalLM").config
    | {
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
    },
)


@dataclass(frozen=True, slots=True)
class Request:
    """Arrives at a turn; `prompt` and `answer` are tokens."""

    turn: int
    prompt: int
    answer: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What a load is drawn from: ranges of prompt and answer tokens, and turns between two requests."""

    prompt: tuple[int, int]
    answer: tuple[int, int]
    between: tuple[int, int]
    requests: int


SHAPES: dict[str, Shape] = {
    "chat": Shape(prompt=(34, 46), answer=(20, 60), between=(4, 12), requests=1100),
    "documents": Shape(prompt=(90, 110), answer=(3, 6), between=(1, 6), requests=1300),
}


def drawn(name: str, seed: int) -> tuple[Request, ...]:
    """The requests of a load."""
    choose, shape, turn = random.Random(f"{name} {seed}"), SHAPES[name], 0
    found = []
    for _ in range(shape.requests):
        turn += choose.randint(*shape.between)
        found.append(Request(turn, choose.randint(*shape.prompt), choose.randint(*shape.answer)))
    return tuple(found)


def engine(ladders: Mapping[Phase, Ladder], folder: Path) -> Runner:
    """A Ready engine with these ladders."""
    features = Features(max_model_len=CONTEXT, max_batch=BATCH, prefill_chunk=CHUNK)
    request = GraphRequest(
        Policy.Breakable,
        Policy.Full,
        prefill_sizes=ladders[Phase.Prefill],
        decode_sizes=ladders[Phase.Decode],
    )
    config = EngineConfig.of(
        features,
        request,
        resolve(features, request),
        model=ModelConfig(SUBJECT.name, str(SUBJECT.folder(folder))),
        dtype=SUBJECT.dtype,
        page_size=SUBJECT.page_size,
        kv_cache_bytes=8 << 20,
    )
    runner = Runner(config, lambda report: None, load=models.load)
    runner.start()
    return runner


def serve(runner: Runner, load: tuple[Request, ...]) -> None:
    """Run a load to its end."""
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, max_queue=len(load)), runner.eos_ids)
    run_ahead = RunAhead(scheduler, runner)
    waiting, turn = list(reversed(load)), 0
    while waiting or run_ahead.busy:
        if not run_ahead.busy:
            turn = max(turn, waiting[-1].turn)
        while waiting and waiting[-1].turn <= turn:
            request = waiting.pop()
            tokens = [3 + (request.prompt + index) % 200 for index in range(request.prompt)]
            name = str(len(waiting))
            scheduler.submit(Sequence(name, tokens, request.prompt, request.answer, ignore_eos=True))
        run_ahead.turn()
        turn += 1


def metrics(runner: Runner) -> bytes:
    """The text of `/metrics` of this engine."""
    status = Status.of(runner.config, "", "uid")
    status.report = runner.report.as_dict()
    exporter = Exporter(FrontMetrics(runner.config.model.name), status)
    exporter.update(runner.counters.snapshot())
    text, _ = exporter.render()
    return text


def uses(load: tuple[Request, ...], ladders: Mapping[Phase, Ladder], folder: Path) -> dict[Phase, LadderUse]:
    """What a load asks of these ladders, by the metrics of an engine that served it."""
    runner = engine(ladders, folder)
    serve(runner, load)
    return {phase: found.use for phase, found in phase_uses(samples(metrics(runner))).items()}


def measured(
    load: tuple[Request, ...], folder: Path, least_passes: int = LEAST_PASSES
) -> dict[Phase, tuple[LadderAdvice, LadderUse]]:
    """By phase the advice of a run on the default ladders, and the use of the advised ladders by a second run."""
    first = {phase: advice(use, least_passes) for phase, use in uses(load, DEFAULT, folder).items()}
    ladders = {phase: said.better or said.use.ladder for phase, said in first.items()}
    second = uses(load, ladders, folder)
    return {phase: (said, second[phase]) for phase, said in first.items()}


def as_plain(said: LadderAdvice, again: LadderUse) -> dict[str, Any]:
    """One row of the result."""
    use = said.use
    return {
        "verdict": said.verdict.value,
        "passes": use.passes,
        "rows": use.rows,
        "ladder": use.ladder,
        "unused": use.unused,
        "padding": use.padding,
        "better": said.better,
        "promised": said.promised,
        "measured": again.padding if said.verdict is Verdict.Change else None,
        "replays": again.replays,
    }


def main() -> None:
    """Draw the loads, measure, write the result, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    seed = parser.parse_args().seed
    torch.set_num_threads(1)
    result: dict[str, Any] = {"seed": seed, "loads": {}}
    print("| load | phase | passes | padding today | promised | measured on a second run |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in SHAPES:
            load = drawn(name, seed)
            rows = {phase.value: as_plain(*found) for phase, found in measured(load, Path(folder)).items()}
            requests = [[one.turn, one.prompt, one.answer] for one in load]
            result["loads"][name] = {"requests": requests, "phases": rows}
            for phase, row in rows.items():
                cells = (name, phase, row["passes"], row["padding"], row["promised"], row["measured"])
                print(f"| {' | '.join(map(str, cells))} |")
    RESULTS.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
