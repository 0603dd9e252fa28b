"""`graphpod-engine bench`: which benchmark. No torch here: the processes have it."""

import argparse
from collections.abc import Sequence

BENCHMARKS = {
    "graphs": "what graphs bring on this machine with one model, against eager and the hardware's floor",
    "serve": "load on an OpenAI-compatible server, and what its clients saw: latency, throughput, goodput",
}


def main(arguments: Sequence[str]) -> int:
    """Runs one benchmark; returns its exit code."""
    summary = "\n".join(f"  {name:<10}{text}" for name, text in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="graphpod-engine bench",
        description=f"Measures an engine.\n\nbenchmarks:\n{summary}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=BENCHMARKS, metavar="benchmark")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="see: graphpod-engine bench <benchmark> --help")
    chosen = parser.parse_args(arguments)
    if chosen.what == "serve":
        from graphpod_runtime.bench.serve.command import main as serve

        return serve(chosen.arguments)
    from graphpod_runtime.bench.graphs import main as graphs

    return graphs(chosen.arguments)
