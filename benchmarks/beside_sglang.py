"""The rows of `graphpod-engine bench serve` on SGLang in process: the same prompts in the same order, without HTTP.

`python -m benchmarks.beside_sglang SUITE --json FILE [--only ROW ...] [--shape NAME] [--ranks N]`, with SGLang 0.5.15
on the path. Weights are random; SUITE is a suite of `bench serve` or a file of its rows, NAME a folder of
`benchmarks/shapes` (without it that of the suite's name). SGLang compiles kernels at its first start on a machine,
which takes minutes.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Protocol

import msgspec

from benchmarks.random_engine import SHAPES, provenance
from graphpod_policy import Device
from graphpod_runtime.bench.serve.drive.client import Answer, Ask
from graphpod_runtime.bench.serve.drive.driver import Share
from graphpod_runtime.bench.serve.drive.messages import Order, Target
from graphpod_runtime.bench.serve.figures.record import Outcome
from graphpod_runtime.bench.serve.figures.summary import Summary, summary
from graphpod_runtime.bench.serve.load.arrivals import Open
from graphpod_runtime.bench.serve.load.load import Load
from graphpod_runtime.bench.serve.options import loads_of, read_words
from graphpod_runtime.bench.serve.suites import Words, suite

MAX_BATCH, CONTEXT, CHUNK, VOCABULARY = 64, 4096, 4096, 151_936
WARM = "--concurrency 32 --requests 64 --input 200 --output 20"
SAMPLING = ("temperature", "top_p", "top_k", "min_p")


class Engine(Protocol):
    """What is asked of `sglang.Engine`."""

    async def async_generate(self, *, input_ids: list[int], sampling_params: dict[str, Any], stream: bool) -> Any: ...
    def shutdown(self) -> None: ...


class InProcess:
    """Stands where the load generator has its HTTP client."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def ask(self, ask: Ask, answer: Answer) -> None:
        """Each piece that the engine gives is a stamp."""
        body = msgspec.json.decode(ask.body)
        sampling = {name: body[name] for name in SAMPLING if name in body}
        sampling |= {"max_new_tokens": body["max_tokens"], "ignore_eos": body.get("ignore_eos", False)}
        stream = await self._engine.async_generate(input_ids=body["prompt"], sampling_params=sampling, stream=True)
        async for _ in stream:
            answer.stamps.append(time.monotonic())
        answer.last = answer.end = time.monotonic()
        if not answer.stamps:
            answer.outcome, answer.error = Outcome.Failed, "empty answer"


def started(shape: Path, context: int, ranks: int = 1) -> Engine:
    """SGLang over `ranks` GPUs with breakable prefill graphs and dummy weights of `shape`, a config.json's folder."""
    import sglang  # type: ignore[import-not-found]

    engine: Engine = sglang.Engine(
        model_path=str(shape), load_format="dummy", skip_tokenizer_init=True, attention_backend="flashinfer",
        sampling_backend="pytorch", cuda_graph_backend_prefill="breakable", grammar_backend="none",
        cuda_graph_max_bs_decode=MAX_BATCH, max_running_requests=MAX_BATCH, mem_fraction_static=0.8,
        chunked_prefill_size=CHUNK, context_length=context, log_level="error", random_seed=0,
        tp_size=ranks,
    )  # fmt: skip
    return engine


async def measured(engine: Engine, words: str, seed: str) -> list[Summary]:
    """What came of a row: of its load, and of those that run with it until it has ended."""
    given = read_words(words)
    loads = loads_of(given, 0, seed, ids=True, vocab=VOCABULARY)
    order = Order(Target("", ""), tuple(loads), 0, 1)
    shares = [Share(load, order, InProcess(engine)) for load in loads]  # type: ignore[arg-type]
    go = time.monotonic()
    running = [asyncio.create_task(share.run(go)) for share in shares]
    await asyncio.gather(*(task for task, share in zip(running, shares, strict=True) if not share.endless))
    for share in shares:
        share.stop()
    await asyncio.gather(*running)
    return [_summary(load, share) for load, share in zip(loads, shares, strict=True)]


def _summary(load: Load, share: Share) -> Summary:
    return summary(share.records, None, open_loop=isinstance(load.loop, Open))


def picked(name: str, only: Sequence[str]) -> list[Words]:
    """The rows of a suite that can run without a grammar."""
    rows = [row for row in suite(name) if "--json-schema" not in row.words]
    return [row for row in rows if not only or any(fnmatch(row.name, one) for one in only)]


async def rows(engine: Engine, asked: Sequence[Words], keep: Callable[[str, list[Summary]], None]) -> None:
    """All rows on one event loop: the engine belongs to the first that asks it."""
    await measured(engine, WARM, "warm")
    for row in asked:
        keep(row.name, await measured(engine, row.words, row.name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", metavar="SUITE")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], metavar="ROW")
    parser.add_argument("--context", type=int, default=CONTEXT)
    parser.add_argument("--shape", choices=sorted(folder.name for folder in SHAPES.iterdir()))
    parser.add_argument("--ranks", type=int, default=1, metavar="N")
    options = parser.parse_args()
    shape = options.shape or f"qwen3-{options.suite.removeprefix('h200-')}"
    rows_asked = picked(options.suite, options.only)
    began = time.monotonic()
    engine = started(SHAPES / shape, options.context, options.ranks)
    found: dict[str, Any] = {"shape": shape, "ranks": options.ranks, "rows": {}}
    found["startSeconds"] = time.monotonic() - began

    def keep(name: str, parts: list[Summary]) -> None:
        found["rows"][name] = [msgspec.to_builtins(part) for part in parts]
        ttft = parts[0].ttft.p50 if parts[0].ttft else 0.0
        print(f"{name:16} {parts[0].output_tokens_per_second:9.0f} tokens/s  TTFT p50 {ttft * 1e3:8.2f} ms", flush=True)
        options.json.write_text(json.dumps(provenance(Device.Cuda) | found, indent=1) + "\n")

    asyncio.run(rows(engine, rows_asked, keep))
    engine.shutdown()


if __name__ == "__main__":
    main()
