"""`graphpod-engine convert --gguf FILE --out DIR [--dtype bfloat16|float32]`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from graphpod_runtime.base.arguments import one_of
from graphpod_runtime.convert.folder import Dtype, convert
from graphpod_runtime.convert.problem import ConvertError


def main(argv: Sequence[str]) -> int:
    """Run the command; `argv` is what follows the word `convert`. Returns the exit status (0, or 1 with one line)."""
    parser = argparse.ArgumentParser(
        prog="graphpod-engine convert", description="Turn a GGUF file into a Hugging Face style model folder."
    )
    parser.add_argument("--gguf", type=Path, required=True, metavar="FILE", help="the GGUF file (Llama architecture)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to create; absent or empty")
    parser.add_argument(
        "--dtype",
        type=one_of(Dtype),
        default=Dtype.Bfloat16,
        metavar="DTYPE",
        help=f"element type of the weights: {', '.join(Dtype)}",
    )
    options = parser.parse_args(argv)
    started = monotonic()
    try:
        done = convert(options.gguf, options.out, options.dtype)
    except ConvertError as error:
        print(f"graphpod-engine convert: {error}", file=sys.stderr)
        return 1
    print(
        f"{done.folder}: {done.tensors} tensors, {done.weights / 1e6:.1f} M weights, {options.dtype}, "
        f"{done.size / 1e6:.0f} MB in {monotonic() - started:.1f} s"
    )
    return 0
