"""`graphpod-engine bench graphs`: its words, and what it writes. No torch here: the processes have it."""

import argparse
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from graphpod_policy import CompileMode, Device, EngineConfig, ExitCode
from graphpod_runtime.base.arguments import number, one_of, portable, sizes
from graphpod_runtime.bench.figures import result, result_file
from graphpod_runtime.bench.figures.result import Left, Result
from graphpod_runtime.bench.figures.result_file import ResultFileInvalid
from graphpod_runtime.bench.figures.variants import REFERENCE, VARIANTS, Variant, obstacles
from graphpod_runtime.bench.figures.workload import FULL, QUICK
from graphpod_runtime.bench.output import plot
from graphpod_runtime.bench.output.progress import Progress
from graphpod_runtime.bench.output.table import table
from graphpod_runtime.bench.process import ProcessFailed
from graphpod_runtime.bench.run import Subject, Turns

PROG = "graphpod-engine bench graphs"
DESCRIPTION = """\
What graphs bring on this machine with this model: prefill, decode, captures, starts and breaks of every
policy, next to eager of the same run and to what memory and arithmetic of the machine allow.

variants:
"""
DTYPES = {Device.Cuda: "bfloat16", Device.Cpu: "float32"}
NVIDIA = Path("/dev/nvidiactl")
"""There with a driver; asking torch would take seconds."""
INCOMPLETE = 1
"""Exit code when a variant failed; the others were measured and are written."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit code. The table goes to standard output, progress to standard error."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        if options.png is not None:
            plot.available()
        if options.source is not None:
            _refuse_others(parser, options)
            return _tell(result.read(options.source), options)
        return _tell(_measured(parser, options, arguments), options)
    except (ResultFileInvalid, plot.NoMatplotlib) as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return ExitCode.ConfigInvalid
    except ProcessFailed as error:
        print(f"{PROG}: the survey of machine and model failed: {error}", file=sys.stderr)
        return ExitCode.ModelInvalid


def _measured(parser: argparse.ArgumentParser, options: argparse.Namespace, arguments: Sequence[str]) -> Result:
    device = options.device
    workload = (QUICK if options.quick else FULL)[device].changed(
        options.prefill_tokens, options.decode_batches, options.rounds
    )
    asked = [VARIANTS[name] for name in dict.fromkeys(options.variant or VARIANTS)]
    left_out, variants = [], []
    for variant in asked:
        if why := obstacles(variant, device, workload):
            left_out.append(Left(variant.name, "; ".join(why)))
        else:
            variants.append(variant)
    if not variants:
        parser.error("; ".join(dict.fromkeys(left.why for left in left_out)))
    turns = Turns(
        subject=Subject(
            folder=options.model or options.random,
            random=options.random is not None,
            device=device,
            dtype=options.dtype or DTYPES[device],
            workload=workload,
            threads=options.threads,
        ),
        variants=[*variants, *([REFERENCE] if options.transformers else [])],
        command=shlex.join([*PROG.split(), *map(portable, arguments)]),
        progress=Progress(sys.stderr),
        keep=lambda so_far: _keep(so_far, options.json),
        left_out=tuple(left_out),
    )
    for left in left_out:
        turns.progress.say(f"{left.name} is left out: {left.why}")
    return turns.run()


def _keep(so_far: Result, path: Path | None) -> None:
    if path is not None:
        result_file.write(so_far, path)


def _tell(found: Result, options: argparse.Namespace) -> int:
    print(table(found, shutil.get_terminal_size((120, 24)).columns), end="")
    if options.png is not None:
        plot.draw(found, options.png)
        print(f"drawn to {options.png}", file=sys.stderr)
    return INCOMPLETE if any(row.failure is not None for row in found.rows) else 0


def _parser() -> argparse.ArgumentParser:
    names = "\n".join(f"  {name:<20}{_description(variant)}" for name, variant in VARIANTS.items())
    parser = argparse.ArgumentParser(
        prog=PROG, description=DESCRIPTION + names, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", type=Path, metavar="DIR", help="a model folder with weights")
    source.add_argument("--random", type=Path, metavar="DIR", help="a folder with a config.json: random weights")
    source.add_argument("--from", dest="source", type=Path, metavar="FILE", help="tell and draw an earlier --json")
    written = parser.add_argument_group("what is written, besides the table")
    written.add_argument("--json", type=Path, metavar="FILE", help="everything found, with provenance")
    written.add_argument("--png", type=Path, metavar="FILE", help="a picture (needs matplotlib)")
    what = parser.add_argument_group("what is measured")
    what.add_argument("--quick", action="store_true", help="few and short: a minute or two")
    what.add_argument("--variant", action="append", choices=VARIANTS, metavar="NAME", help="only this; repeatable")
    what.add_argument("--transformers", action="store_true", help="Hugging Face transformers as a reference, too")
    what.add_argument("--prefill-tokens", type=sizes, metavar="N,…")
    what.add_argument("--decode-batches", type=sizes, metavar="N,…")
    what.add_argument(
        "--rounds", type=number(int, 1), metavar="N", help="of everything; more tell more on a busy machine"
    )
    where = parser.add_argument_group("where")
    here = Device.Cuda if NVIDIA.exists() else Device.Cpu
    where.add_argument(
        "--device", type=one_of(Device), default=here, metavar="DEVICE", help=f"{' or '.join(Device)}; here: {here}"
    )
    where.add_argument("--dtype", choices=EngineConfig.DTYPES, help="default: bfloat16 on cuda, float32 on cpu")
    where.add_argument("--threads", type=number(int, 1), metavar="N", help="default: torch's")
    return parser


def _description(variant: Variant) -> str:
    compiled = "" if variant.compile is CompileMode.Nothing else f", compiled by {variant.compile.value}"
    return f"prefill {variant.prefill}, decode {variant.decode}{compiled}"


def _refuse_others(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """--from measures nothing, so it takes no word about measuring."""
    for action in parser._actions:
        if action.dest not in ("help", "source", "png") and getattr(options, action.dest) != action.default:
            parser.error(f"{action.option_strings[0]} goes with --model or --random; with --from the file says it")
