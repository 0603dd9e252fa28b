"""`python -m benchmarks.first_token`: one streamed request at a time, on an idle server; the time to its first token as
the client has it, and by part.

With `--model FOLDER` the engine has that model; a folder that has a config.json alone gives random weights. Without, it
answers at once: all of the time is the front's and the wire's. With `--against COMMIT` the servers of two commits run
side by side and are asked in turn, so the ratio of their medians is what counts: two servers without marks for the
whole time, and then two with marks for the parts (marks cost some microseconds each). `--whole` leaves the latter out.
"""

import argparse
import contextlib
import json
import os
import platform
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.first_token.client import Asked, Client
from benchmarks.first_token.marks import PARTS, VARIABLE, parts_of
from benchmarks.front_streams import model as words
from benchmarks.front_streams.fronts import ROOT, checked_out, running
from graphpod_policy import EngineConfig
from graphpod_runtime.api.local_config import LocalOptions, add_local_options, local_config
from graphpod_runtime.base.arguments import memory

WARM = 20
START_SECONDS = 500.0
FRONT = "benchmarks.first_token.front"
NOW, BEFORE = "now", "before"
WIDTH = 76


@dataclass(frozen=True, slots=True)
class Server:
    """One that is ready. `marks`: the file of its marks, where it has any."""

    pid: int
    url: str
    marks: Path | None


def main() -> int:
    """The command."""
    options = _options()
    rows = []
    with tempfile.TemporaryDirectory(prefix="graphpod-first-token-") as scratch, contextlib.ExitStack() as until:
        folder = Path(scratch)
        config, vocabulary = _configured(options, folder)
        path = folder / "engine.json"
        path.write_bytes(config.canonical())
        trees = {BEFORE: checked_out(options.against, folder / "tree")} if options.against else {}
        servers: dict[str, list[Server]] = {
            name: [
                until.enter_context(_server(tree, path, folder / f"{name}{marked}", options.model, marked=marked))
                for marked in ([False] if options.whole else [False, True] if options.against else [True])
            ]
            for name, tree in {**trees, NOW: ROOT}.items()
        }
        for tokens in options.prompt:
            asked = Asked(config.model.name, tokens, vocabulary, options.tokens, options.text)
            rows.append({"prompt": tokens, **_row(servers, asked, options.requests, options.pause)})
            _print(rows[-1])
    if options.json:
        options.json.write_text(json.dumps(_provenance(options) | {"rows": rows}, indent=1) + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.first_token", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", type=Path, help="its folder; without it, an engine that answers at once")
    parser.add_argument("--prompt", type=int, nargs="+", default=[64, 512, 2048], help="tokens")
    parser.add_argument("--tokens", type=int, default=1, help="of an answer; default: %(default)s")
    parser.add_argument("--requests", type=int, default=200, help="of each kind; default: %(default)s")
    parser.add_argument("--pause", type=float, default=0.003, help="seconds before each; default: %(default)s")
    parser.add_argument("--text", action="store_true", help="prompts as text instead of token ids")
    parser.add_argument("--against", metavar="COMMIT", help="a commit to compare with")
    parser.add_argument("--whole", action="store_true", help="the whole time alone, no parts")
    parser.add_argument("--json", type=Path, metavar="FILE")
    group = parser.add_argument_group("with --model")
    group.add_argument("--kv-cache", type=memory, default=2 << 30, metavar="SIZE", help="of a server; default: 2Gi")
    add_local_options(group)
    parser.set_defaults(max_model_len=4096, max_batch=16)
    return parser.parse_args()


def _configured(options: argparse.Namespace, folder: Path) -> tuple[EngineConfig, int]:
    """The configuration of the engines, and the size of their vocabulary. What the folder of a model lacks to be served
    is made in a copy of its configuration."""
    if options.model is None:
        return EngineConfig.parse(words.write(folder).read_bytes()), words.FIRST_WORD + words.WORDS
    shape = json.loads((options.model / "config.json").read_bytes())
    vocabulary = int(shape.get("text_config", shape)["vocab_size"])
    if not (options.model / "tokenizer.json").is_file():
        copy = folder / options.model.resolve().name
        copy.mkdir()
        shutil.copy(options.model / "config.json", copy)
        words.write_tokenizer(copy, vocabulary)
        options.model = copy
    return replace(local_config(LocalOptions.of(options)), kv_cache_bytes=options.kv_cache), vocabulary


@contextlib.contextmanager
def _server(tree: Path, config: Path, log: Path, model: Path | None, *, marked: bool) -> Iterator[Server]:
    engine = f"benchmarks.first_token.{'engine' if model else 'empty_engine'}"
    marks = log.with_suffix(".marks") if marked else None
    environment = {"GRAPHPOD_ENGINE": engine, "GRAPHPOD_TOKENS_PER_SECOND": "0", VARIABLE: str(marks or "")}
    with running(tree, config, log, FRONT, START_SECONDS, **environment) as (pid, url):
        yield Server(pid, url, marks)


def _row(servers: dict[str, list[Server]], asked: Asked, requests: int, pause: float) -> dict[str, dict[str, Any]]:
    """Microseconds by tree: medians of the whole time, of the front's processor time, of each part, and of the device's
    own."""
    row: dict[str, dict[str, Any]] = {name: {} for name in servers}
    for turn in range(len(servers[NOW])):
        clients = {name: Client(each[turn].url, asked) for name, each in servers.items()}
        times = {name: list[tuple[int, int]]() for name in servers}
        for client in clients.values():
            for _ in range(WARM):
                client.first_token(pause)
        skip = {name: marks.stat().st_size for name, each in servers.items() if (marks := each[turn].marks)}
        used = {name: _processor_ns(each[turn].pid) for name, each in servers.items()}
        for _ in range(requests):
            for name, client in clients.items():
                times[name].append(client.first_token(pause))
        for name, each in servers.items():
            whole = sorted((came - began) / 1000 for began, came in times[name])
            cpu = (_processor_ns(each[turn].pid) - used[name]) / requests / 1000
            found = {"whole": statistics.median(whole), "p10": whole[len(whole) // 10], "front_cpu": cpu}
            row[name] = {figure: round(value, 1) for figure, value in found.items()} | row[name]
            if (marks := each[turn].marks) is not None:
                row[name]["parts"], row[name]["device"] = parts_of(marks, skip[name], times[name])
    return row


def _processor_ns(pid: int) -> int:
    """Nanoseconds that all threads of a process have run."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def _provenance(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"requests": options.requests, "pause": options.pause, "text": options.text}
    found |= {"tokens": options.tokens, "against": options.against, "cpus": os.cpu_count()}
    found |= {"python": platform.python_version(), "date": datetime.now(UTC).date().isoformat()}
    if options.model is not None:
        import torch

        cuda = torch.cuda.is_available()
        found |= {"torch": torch.__version__, "gpu": torch.cuda.get_device_name() if cuda else None}
    return found | {"command": shlex.join(["python", "-m", "benchmarks.first_token", *sys.argv[1:]])}


def _print(row: dict[str, Any]) -> None:
    trees = [name for name in (BEFORE, NOW) if name in row]
    title = f"prompt of {row['prompt']} tokens (µs)"
    print(f"{title:{WIDTH}}" + "".join(f"{name:>10}" for name in trees))
    figures = ["whole", "p10", "front_cpu"] + (["device"] if "device" in row[NOW] else [])
    lines = {name: [row[tree][name] for tree in trees] for name in figures}
    if "parts" in row[NOW]:
        lines |= {
            f"  {name:16}{what}": [row[tree]["parts"].get(name) for tree in trees] for name, what in PARTS.items()
        }
    for name, values in lines.items():
        if all(value is None for value in values):
            continue
        ratio = f"{values[0] / max(values[1], 0.1):10.2f}" if len(values) > 1 and None not in values else ""
        print(f"{name:{WIDTH}}" + "".join(f"{'' if one is None else one:>10}" for one in values) + ratio, flush=True)


if __name__ == "__main__":
    sys.exit(main())
