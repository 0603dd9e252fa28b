"""`graphpod-engine bench serve`: its words, and what it writes. No torch here: the server is another process."""

import argparse
import asyncio
import json
import platform
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

import msgspec

from graphpod_policy import ExitCode, __version__
from graphpod_runtime.base.arguments import number, portable
from graphpod_runtime.bench import host
from graphpod_runtime.bench.figures import result_file
from graphpod_runtime.bench.figures.result_file import ResultFileInvalid
from graphpod_runtime.bench.output.plot import NoMatplotlib
from graphpod_runtime.bench.output.plot import available as matplotlib_available
from graphpod_runtime.bench.output.progress import Progress
from graphpod_runtime.bench.serve.figures import report as reports
from graphpod_runtime.bench.serve.figures.report import FORMAT, Machine, Report, Server
from graphpod_runtime.bench.serve.options import Given, WordsInvalid, add_load_options, check, seed_of, words_of
from graphpod_runtime.bench.serve.output import plot
from graphpod_runtime.bench.serve.output.table import table
from graphpod_runtime.bench.serve.suites import SUITES, SuiteInvalid, Words, suite

PROG = "graphpod-engine bench serve"
DESCRIPTION = """\
Sends load to an OpenAI-compatible server and reports what its clients saw: time to the first token (TTFT), gaps
between pieces (ITL), time a token (TPOT), whole requests (E2E), throughput, and goodput within --slo."""
INCOMPLETE = 1
"""Exit code when a request failed, or a run ended early; what was measured is written."""
STOPPED = 130
VOCAB = 32_000
"""Nearly every vocabulary is larger."""
PACKAGES = ("aiohttp", "torch", "triton", "flashinfer-python")


class NoAiohttp(Exception):
    """The HTTP client is not installed."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit code. Tables go to standard output, progress to standard error."""
    parser, load_options = _parser()
    options = parser.parse_args(arguments, Given())
    try:
        check(options)
        _check(parser, load_options, options)
        if options.png is not None:
            matplotlib_available()
        if options.source is not None:
            return _show(reports.read(options.source), options)
        return _show(_measured(options, load_options, arguments), options)
    except (WordsInvalid, SuiteInvalid, ResultFileInvalid, NoMatplotlib, NoAiohttp) as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return ExitCode.ConfigInvalid
    except Unmeasured as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return INCOMPLETE
    except KeyboardInterrupt:
        print(
            f"\n{PROG}: stopped; finished rows are in {options.json or 'no file: --json was not given'}",
            file=sys.stderr,
        )
        return STOPPED


def _check(
    parser: argparse.ArgumentParser, load_options: Sequence[argparse.Action], options: argparse.Namespace
) -> None:
    """WordsInvalid for words that would be ignored."""
    if options.serve and options.model is None:
        raise WordsInvalid("--serve has options of the engine that --model starts; give it with --model")
    if options.source is not None:
        used = {"source", "png", "against", "help"}
        for action in parser._actions:
            if action.dest not in used and getattr(options, action.dest, action.default) != action.default:
                raise WordsInvalid(f"{action.option_strings[0]} goes with --url or --model; --from measures nothing")
    elif options.suite is None and options.only:
        raise WordsInvalid("--only picks rows of a --suite")
    elif options.suite is not None and (words := words_of(load_options, options)):
        raise WordsInvalid(f"--suite has its own rows; leave out {words}")


class Unmeasured(Exception):
    """The run ended early: no server, or a process of ours that died."""


def _measured(options: argparse.Namespace, load_options: list[argparse.Action], arguments: Sequence[str]) -> Report:
    if find_spec("aiohttp") is None:
        raise NoAiohttp("bench serve needs aiohttp, which is not installed; in a clone: pip install '.[bench]'")
    from graphpod_runtime.bench.serve.drive.drivers import DriverFailed
    from graphpod_runtime.bench.serve.drive.messages import Target
    from graphpod_runtime.bench.serve.drive.own_engine import EngineEnded, OwnEngine
    from graphpod_runtime.bench.serve.drive.target import TargetInvalid, ask, base_of
    from graphpod_runtime.bench.serve.run import Run, Setting

    progress = Progress(sys.stderr)
    rows = _rows(options, load_options)
    key = _key(options.api_key_file)
    serve = ["serve", "--model", str(options.model), *shlex.split(options.serve)] if options.model is not None else None
    engine_command = shlex.join(["graphpod-engine", *map(portable, serve)]) if serve is not None else None
    earlier = reports.read(options.json) if options.suite and options.json and options.json.exists() else None
    if earlier is not None and earlier.server.command != engine_command:
        raise ResultFileInvalid(
            f"the --json file is of {earlier.server.command or 'a --url'}, and this run is of "
            f"{engine_command or 'a --url'}; give another file"
        )
    rows = _left(rows, earlier, options, progress)
    if earlier is not None and not rows:
        return earlier
    command = shlex.join([*PROG.split(), *map(portable, arguments)])
    try:
        with ExitStack() as stack:
            engine, starts = None, list[float]()
            if serve is not None:
                progress.say(f"starting the engine on {options.model}")
                engine = stack.enter_context(OwnEngine(serve))
                starts.append(engine.ready())
                progress.say(f"ready in {starts[0]:.1f} s")
            base = base_of(engine.url if engine else options.url)
            server = asyncio.run(ask(base, key, options.name))
            if engine is not None:
                server = msgspec.structs.replace(
                    server, url="own", version=f"graphpod {__version__}", command=engine_command, starts=tuple(starts)
                )
            progress.say(f"{server.model} at {base} ({server.version})")
            run = Run(
                Setting(
                    target=Target(base, server.model, key, options.timeout),
                    processes=options.processes,
                    warm_up=options.warm_up,
                    vocab=options.vocab or _vocab(options.model),
                    seed=options.seed,
                    progress=progress,
                    check=engine.check if engine else lambda: None,
                ),
                keep=lambda so_far: result_file.write(so_far, options.json) if options.json else None,
            )
            return run.rows(_report(earlier, command, server), rows)
    except (DriverFailed, EngineEnded, TargetInvalid) as error:
        raise Unmeasured(str(error)) from error


def _key(file: Path | None) -> str | None:
    """The first word of the file; WordsInvalid without one."""
    if file is None:
        return None
    try:
        words = file.read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise WordsInvalid(f"--api-key-file {file} cannot be read: {error}") from error
    if not words:
        raise WordsInvalid(f"--api-key-file {file} is empty; write the server's key into it")
    return words[0]


def _rows(options: argparse.Namespace, load_options: list[argparse.Action]) -> list[Words]:
    if options.suite is None:
        return [Words("load", words_of(load_options, options))]
    rows = [
        row for row in suite(options.suite) if not options.only or any(fnmatch(row.name, one) for one in options.only)
    ]
    if not rows:
        raise SuiteInvalid(f"no row of {options.suite} matches {' or '.join(options.only)}")
    return rows


def _left(rows: list[Words], earlier: Report | None, options: argparse.Namespace, progress: Progress) -> list[Words]:
    """Those that the earlier report lacks: not measured, with other words or another seed, or with failures."""
    if earlier is None or options.again:
        return rows
    left = []
    for row in rows:
        done = earlier.row(row.name)
        same = done is not None and (done.words, done.parts[0].seed) == (row.words, seed_of(options.seed, row.name))
        if done is None or not same or done.failed:
            left.append(row)
        else:
            progress.say(f"{row.name} is in {options.json} already, of {done.date}; --again measures it again")
    return left


def _report(earlier: Report | None, command: str, server: Server) -> Report:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    if earlier is None:
        return Report(FORMAT, command, date, _machine(), server)
    if (earlier.server.model, earlier.server.version) != (server.model, server.version):
        raise ResultFileInvalid(
            f"the --json file is of {earlier.server.model} by {earlier.server.version}, and this server has "
            f"{server.model} by {server.version}; give another file"
        )
    if earlier.machine != _machine():
        raise ResultFileInvalid(
            "the --json file is of another machine or of other versions of packages; give another file"
        )
    return msgspec.structs.replace(
        earlier, server=msgspec.structs.replace(server, starts=(*earlier.server.starts, *server.starts))
    )


def _machine() -> Machine:
    return Machine(
        cpu=host.cpu(),
        cores=host.cores(),
        gpus=tuple(host.gpus("name", "driver_version")),
        system=platform.platform(terse=True),
        versions={
            "graphpod": __version__,
            "python": platform.python_version(),
            **{name: found for name in PACKAGES if (found := host.installed(name)) is not None},
        },
    )


def _vocab(model: Path | None) -> int:
    if model is None:
        return VOCAB
    try:
        return int(json.loads((model / "config.json").read_bytes())["vocab_size"])
    except (OSError, ValueError, KeyError) as error:
        raise WordsInvalid(f"{model}/config.json has no vocab_size ({error!r}); give --vocab") from error


def _show(report: Report, options: argparse.Namespace) -> int:
    against = reports.read(options.against) if options.against is not None else None
    print(table(report, against), end="")
    if options.png is not None:
        plot.draw(report, options.png)
        print(f"drawn to {options.png}", file=sys.stderr)
    return INCOMPLETE if any(row.failed for row in report.rows) else 0


def _parser() -> tuple[argparse.ArgumentParser, list[argparse.Action]]:
    parser = argparse.ArgumentParser(prog=PROG, description=DESCRIPTION, allow_abbrev=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--url", help="an OpenAI-compatible server: http://HOST:PORT")
    source.add_argument("--model", type=Path, metavar="DIR", help="start our own engine on this folder for the run")
    source.add_argument("--from", dest="source", type=Path, metavar="FILE", help="show and draw an earlier --json")
    where = parser.add_argument_group("the server")
    where.add_argument("--serve", default="", metavar="WORDS", help="with --model: options of graphpod-engine serve")
    where.add_argument("--name", help="the model to ask for; default: the first of /v1/models")
    where.add_argument("--api-key-file", type=Path, metavar="FILE", help="the key is its first word")
    where.add_argument(
        "--vocab", type=number(int, 2), metavar="N", help=f"token ids are below it; default: {VOCAB} or the --model's"
    )
    load_options = add_load_options(parser)
    rows = parser.add_argument_group("several loads, one after another")
    rows.add_argument("--suite", metavar="NAME|FILE", help=f"{', '.join(SUITES)}, or a file of rows: NAME WORDS")
    rows.add_argument("--only", action="append", default=[], metavar="PATTERN", help="only these rows; repeatable")
    rows.add_argument("--again", action="store_true", help="also rows that the --json file has already")
    how = parser.add_argument_group("the driver")
    how.add_argument("--processes", type=number(int, 1), metavar="N", help="default: one for four cores")
    how.add_argument(
        "--warm-up", type=number(int, 0), metavar="N", help="requests before; default: as the concurrency, at most 32"
    )
    how.add_argument(
        "--seed", type=number(int, 0), default=0, metavar="N", help="another seed is other prompts; default: 0"
    )
    how.add_argument(
        "--timeout", type=number(float, 0.1), default=600.0, metavar="SECONDS", help="of a request; default: 600"
    )
    written = parser.add_argument_group("what is written, next to the table")
    written.add_argument("--json", type=Path, metavar="FILE", help="everything found; a suite goes on where it ended")
    written.add_argument("--png", type=Path, metavar="FILE", help="a picture (needs matplotlib)")
    written.add_argument("--against", type=Path, metavar="FILE", help="ratios to another --json, row by row")
    return parser, load_options
