"""docs/reference/chaos.md from the table of faults and the last counts: `python -m tests.sim.chaos.page` writes it."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graphpod_operator.docs.markdown import table
from tests.sim.chaos.faults import FAULTS

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "chaos.json"
PAGE = ROOT / "docs" / "reference" / "chaos.md"

HEAD = """# What was tried

Each fault below hits a running operator on a real API server, with a scheduler, simulated nodes and stub engines.
Meanwhile a user creates, updates or deletes a service. `make chaos` runs all of it and counts in
[chaos.json](../../benchmarks/results/chaos.json). `make chaos ROWS='watch and delete'` runs a part and replaces its
earlier rows. `make test` runs a sample. Four oracles judge every run:

- **as undisturbed**: objects, pods and status end as in the same run without a fault. No object exists twice, and none
  is without an owner.
- **bounded writes**: the operator writes no more than in the undisturbed run plus the number allowed below, by the
  audit log. It writes no object more than 15 times in 5 s.
- **truthful status**: a status said Ready only after as many pods as requested had proved their graphs. By then no pod
  without proof had served for 10 s.
- **no crash**: the operator's log has no traceback.

`in order` counts the runs that passed every oracle, of those in the latest recorded try. 0 of 0 means: in the table,
but not tried. chaos.json records the commit and the day of each.

"""
KILLS = """
## The operator killed at every write

`kill -9` hits the operator before each write of a create and of an update is passed on, and again after each write is
done but before its answer arrives. The next container goes on. Four more writes are allowed.

"""
STEPS = ("to a", "to b", "to bad", "truthful status")
"""Of a walk; the last is that no status on its way lied."""
WALKS = """
## Generated histories

Specs are drawn at random from the schema: A → B → A → one that the operator refuses → A. Two more services are created
as A and as B and left alone. After every step the changing service must equal its twin, and the refused spec may touch
no pod. `truthful status` counts the histories in which no status was wrong at any time. Two things are left out: fields
that differ by design (with autoscaling the number of pods depends on what was before), and specs whose pods no node can
run.

"""


def page() -> str:
    """The page's text."""
    rows = json.loads(RESULTS.read_text())["rows"]
    faults = [
        (
            *(one.name, one.what, ", ".join(s.name for s in one.scenarios), one.shows, str(one.extra)),
            _in_order(row for row in rows if row["fault"] == one.name),
        )
        for one in FAULTS
    ]
    kills = [
        (f"{when} the writes of {scenario}", _in_order(made))
        for when in ("before", "after")
        for scenario in ("create", "update")
        for made in [[r for r in rows if r["fault"].startswith(f"killed {when} ") and r["scenario"] == scenario]]
    ]
    walks = [
        (step, _in_order(r for r in rows if r["fault"] == "generated history" and r["scenario"].startswith(f"{step},")))
        for step in STEPS
    ]
    head = ("fault", "what is done", "while", "what it shows", "writes allowed", "in order")
    return "".join(
        [
            *(HEAD, table(head, faults)),
            *(KILLS, table(("killed", "in order"), kills)),
            *(WALKS, table(("transition", "in order"), walks)),
        ]
    )


def _in_order(rows: Iterable[dict[str, Any]]) -> str:
    """How many runs of these passed, of how many."""
    rows = list(rows)
    return f"{sum(row['passed'] for row in rows)} of {sum(row['runs'] for row in rows)}"


if __name__ == "__main__":
    PAGE.write_text(page())
