"""`make support-matrix`: runs what of the matrix is not recorded, then writes the page.

    python -m truth.support [--only ARCHITECTURE ...] [--again] [--page]

An architecture that is recorded is not run again, so a run that was ended goes on; `--again` runs all. `--page` only
writes docs/reference/support-matrix.md, from these runs and those of `make families`.
"""

import argparse
import sys

from truth.cell import Cell, Outcome
from truth.support.page import write_page
from truth.support.recorded import keep, kept
from truth.support.subjects import DECODERS, cells


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m truth.support", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="ARCHITECTURE", choices=DECODERS, help="default: all")
    parser.add_argument("--again", action="store_true", help="also architectures that are recorded")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    if not options.page:
        done = set() if options.again or options.only else kept().keys()
        for name in options.only or DECODERS:
            if name not in done:
                keep(name, tuple(cells((name,), _tell)))
    write_page()
    failed = [str(cell) for found in kept().values() for cell in found if cell.outcome is Outcome.Failed]
    print(f"failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _tell(done: int, of: int, cell: Cell) -> None:
    print(f"{cell}: {cell.summary} ({cell.seconds:.1f} s)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
