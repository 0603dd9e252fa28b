"""`graphpod-engine`: serve, generate, convert, bench. No torch in the parser: a command imports what it needs."""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from graphpod_policy import ConfigError, ExitCode, ReasoningParser, ServingConfig, ToolParser, __version__
from graphpod_policy.start.flags import BY_FLAGS, in_flags
from graphpod_runtime.api.local_config import LocalError, LocalOptions, add_local_options, local_config
from graphpod_runtime.base.arguments import number, one_of
from graphpod_runtime.base.leader import LEADER
from graphpod_runtime.base.process.openmp import bound_spinning
from graphpod_runtime.commands.other_engines_flags import parsed
from graphpod_runtime.compiled.bytecode import forget_bytecode, keep_bytecode

COMMANDS = {
    "serve": "serve the OpenAI API from an engine.json, or from a model folder on this machine",
    "generate": "generate from a prompt, without a server",
    "convert": "turn a GGUF file into a model folder",
    "bench": "measure: what graphs bring on this machine, or a server under load",
}
INTERRUPTED = 128 + signal.SIGINT
"""Exit code after Ctrl-C, as shells have it. A server drains instead."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code. Without `arguments` they are the process's own, and a server ends the
    process, whatever its threads do.
    """
    summary = "\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="graphpod-engine",
        description=f"graphpod's inference engine.\n\ncommands:\n{summary}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("command", choices=COMMANDS, metavar="command")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="see: graphpod-engine <command> --help")
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return 2
    chosen = parser.parse_args(arguments)
    bound_spinning(os.environ)
    keep_bytecode()
    try:
        code = _run(chosen.command, chosen.arguments)
    except KeyboardInterrupt:
        print(f"graphpod-engine {chosen.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        forget_bytecode(error)
        raise
    if arguments is None and chosen.command == "serve":
        # The interpreter waits at its end for threads of pools, and one may be in a call that takes minutes.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def _run(command: str, arguments: Sequence[str]) -> int:
    match command:
        case "serve":
            return _serve(arguments)
        case "generate":
            from graphpod_runtime.commands.generate import main as generate

            return generate(arguments)
        case "bench":
            from graphpod_runtime.bench.command import main as bench

            return bench(arguments)
        case _:
            from graphpod_runtime.convert.command import main as convert

            return convert(arguments)


def _serve(arguments: Sequence[str]) -> int:
    from graphpod_runtime.front.access.arguments import http_options
    from graphpod_runtime.front.options import ServeOptions
    from graphpod_runtime.front.serve import serve

    options = _serve_options(arguments)
    with tempfile.TemporaryDirectory(prefix="graphpod-") as folder:
        path = options.config
        if path is None:
            try:
                serving = ServingConfig(tool_parser=options.tool_parser, reasoning_parser=options.reasoning_parser)
                config = local_config(LocalOptions.of(options), serving=serving)
            except LocalError as error:
                print(f"graphpod-engine serve: {error}", file=sys.stderr)
                return error.code
            except ConfigError as error:
                print(f"graphpod-engine serve: {in_flags(str(error))}", file=sys.stderr)
                return ExitCode.ConfigInvalid
            path = Path(folder) / "engine.json"
            path.write_bytes(config.canonical())
            os.environ[BY_FLAGS] = "1"
        if options.leader is not None:
            os.environ[LEADER] = options.leader
        if options.node_index:
            from graphpod_runtime.commands.worker import main as worker

            return worker(path, options.node_index, options.termination_log)
        return serve(
            ServeOptions(
                path,
                options.host,
                options.http_port,
                options.admin_port,
                options.termination_log,
                **http_options(options),
            )
        )


def _serve_options(arguments: Sequence[str]) -> argparse.Namespace:
    from graphpod_runtime.front.access.arguments import add_http_options

    parser = argparse.ArgumentParser(prog="graphpod-engine serve", description=COMMANDS["serve"])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, metavar="FILE", help="an engine.json, as the operator writes it")
    source.add_argument(
        "--model", type=Path, metavar="DIR", help="a model folder, from which the configuration follows"
    )
    parser.add_argument("--host", help="address to listen on; default: all, IPv4 and IPv6")
    parser.add_argument(
        "--http-port",
        type=number(int, 0, 65535),
        default=8000,
        help="OpenAI API; default: %(default)s (0: a free port)",
    )
    parser.add_argument(
        "--admin-port",
        type=number(int, 0, 65535),
        default=8001,
        help="probes, warm-up, metrics, sleep; default: %(default)s (0: a free port)",
    )
    parser.add_argument(
        "--node-index",
        type=number(int, 0, 63),
        default=0,
        metavar="INDEX",
        help="which of several machines this is: 0, the leader's, serves requests; the others have ranks alone",
    )
    parser.add_argument(
        "--leader",
        metavar="HOST:PORT",
        help="of several machines, the address of machine 0 as the others reach it; ports from this one on are used, "
        "one for each rank and two more",
    )
    parser.add_argument("--termination-log", type=Path, metavar="FILE", help="file for the cause of an exit")
    add_http_options(parser)
    group = parser.add_argument_group("with --model")
    local = (
        group.add_argument("--name", help="model name in requests (default: the folder's)"),
        *add_local_options(group, files=True),
        group.add_argument(
            "--nodes",
            type=number(int, 1, 64),
            default=1,
            metavar="MACHINES",
            help="machines that share the ranks; each runs this command with its --node-index; default: 1",
        ),
        group.add_argument(
            "--tool-parser",
            type=one_of(ToolParser),
            default=ToolParser.Auto,
            metavar="FORMAT",
            help=f"how answers write calls of tools: {', '.join(ToolParser)}; default: %(default)s (as the chat "
            "template shows)",
        ),
        group.add_argument(
            "--reasoning-parser",
            type=one_of(ReasoningParser),
            default=ReasoningParser.Auto,
            metavar="FORMAT",
            help=f"how answers write reasoning: {', '.join(ReasoningParser)}; default: %(default)s",
        ),
        group.add_argument(
            "--sleep",
            action="store_true",
            help="weights and KV cache can leave the device: POST /sleep and /wake of the admin port",
        ),
        group.add_argument(
            "--sleep-after",
            type=number(int, 1),
            metavar="SECONDS",
            help="they leave after a time without requests, and the next request brings them back; default: never",
        ),
        group.add_argument(
            "--reload",
            action="store_true",
            help="POST /reload of the admin port reads new weights of the same shape from the model's folder",
        ),
    )
    options = parsed(parser, arguments)
    if options.config is not None:
        for action in local:
            if getattr(options, action.dest) != action.default:
                parser.error(f"{action.option_strings[0]} needs --model; with --config the file sets it")
    return options


if __name__ == "__main__":
    sys.exit(main())
