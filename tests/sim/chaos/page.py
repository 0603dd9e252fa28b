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

Each fault below is done to an operator at work on a real API server, with a scheduler, simulated nodes and stub
engines, while a user creates, updates or deletes a service. `make chaos` does all of it and counts in
[chaos.json](../../benchmarks/results/chaos.json), `make chaos ROWS='watch and delete'` a part, whose rows take the
place of their earlier ones; `make test` does a sample. Every run is judged by four oracles:

- **as undisturbed**: objects, pods and status end as in a run of the same that nothing disturbed, nothing is there
  twice, and nothing belongs to nobody;
- **bounded writes**: the audit log shows no more writes of the operator than the undisturbed run's and the number
  allowed here, and no object written more than 15 times in 5 s;
- **truthful status**: no status ever said Ready but with proof, heard before, of as many pods as were asked for, and no
  pod without proof served for 10 s by then;
- **no crash**: no traceback in the operator's log.

`in order` counts the runs that every oracle found in order, of those that were made when this was last tried; 0 of 0:
it stands in the table and was not tried. chaos.json says of each at which commit and on which day that was.

"""
KILLS = """
## The operator killed at every write

`kill -9` before each write of a create and of an update is passed on, and after it was done and before its answer came;
the next container goes on. Four writes more are allowed.

"""
STEPS = ("to a", "to b", "to bad", "all told")
"""Of a walk; the last is that no status on its way lied."""
WALKS = """
## Generated histories

Specs drawn at random from the schema, A → B → A → one that the operator refuses → A. Beside each service that walks
stand two that were made as A and as B and left alone: it must stand as its twin does after every step, and the refused
spec may touch no pod. `all told` are the walks on whose whole way no status lied. Left out are the fields that decide
otherwise by design (autoscaling: the number of pods then depends on what was before), and specs whose pods no node can
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
