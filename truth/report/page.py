"""docs/reference/truth.md, from the results of each device."""

from collections.abc import Iterable
from pathlib import Path

from graphpod_policy import Device
from truth.accuracy import ALLOWED, WINDOW
from truth.cell import Cell, Outcome
from truth.reference import NEAR_TIE, ROUNDING
from truth.report.result import Result

PAGE = Path("docs/reference/truth.md")
TITLES = {Device.Cpu: "On a CPU (recorder)", Device.Cuda: "On a GPU"}

INTRODUCTION = f"""# The truth matrix

Written by `make truth`; not edited by hand. Every graph policy runs every scenario on a small random model of every
architecture, and must choose the tokens that the same engine chooses with both phases `Disabled`, on the same schedule
(the recorded tokens are handed to both, so one difference cannot hide another). A row is *prefill / decode* policy, and
how layers are compiled.

- **✓ n**: n tokens compared and equal; both counts of eager passes agree; no pass was eager where graphs were captured.
  *(n ~)*: so many of them differ, and eager finds them behind its own choice by less than {NEAR_TIE:g} in
  log-probability (fp32, TF32 off), or {ROUNDING} times what another batch shape does to eager itself (16 bits;
  compiled code rounds less often than eager, and may differ by what a unit or two in the last place of every weight
  do).
- `Rule`: refused by that rule of [the table](rules.md). A gate's name says that these passes ran eagerly and were
  counted so; their tokens were compared all the same. `FeatureNotBuilt`: this version has no
  such thing, with the field that asks for it.
- **✗**: wrong. `make truth` then ends with 1.
- –: not run.

Requests are served as a server would, a pass ahead of what is known. *Prefix hit*: their first pages lie in the prefix
cache. *Sampled*: at temperature 0.8, each with a seed; how near a token is counts by its score, noise included.
*Grammars*: some of the requests of a prefix hit have one, at temperature 0.8, and some have none. *Embeddings*: of the
last row or the mean of all rows, next to texts; entries of the vectors, scaled to length 1, count as log-probabilities.

The row *Disabled / Disabled* compares eager with itself: each text once more, alone, its answer computed as prompt.
A *fault* is injected into the start (`GRAPHPOD_FAULT`); the engine degrades, says by which rule, and must stay right.
*Log-probabilities* are compared by value, too: they differ by less than a near-tie does.

*Over ranks* each layer is divided among so many processes (gloo on CPUs, NCCL on GPUs), and compared with eager of one.
Heads and vocabularies are of sizes that divide. *Over stages* each process has some of the layers: of three, two stages
have two and one. Eager of one process then runs the batches of their schedule. *Experts over 2*: each half of a
mixture's experts is on ranks of its own. Rules that call a policy unproven there do not stop it: each runs. Tables over
ranks have the host tier and, of drafts, those of a head, which stages do not have.
Their faults are drawn: the kind, the rank that meets it, and the scenario that is served then. Every two of subject,
policy, kind, rank and scenario meet in some cell. Compiled policies do not meet every subject, though.
"""


def page(results: Iterable[Result]) -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(_device(result) for result in results)])


def _device(result: Result) -> str:
    counts = result.counts()
    rules = ", ".join(f"{_rule(rule)} {count}" for rule, count in result.rules().most_common())
    ties, tokens = result.ties(fixed=True)
    lines = [
        f"## {TITLES[result.device]}" + (f", over {result.spread}" if result.spread.ranks > 1 else ""),
        "",
        f"{len(result.cells)} cells: {counts[Outcome.Passed]} passed, {counts[Outcome.Failed]} failed, "
        f"{counts[Outcome.Refused]} refused" + (f" ({rules})." if rules else "."),
        f"Near-ties: {ties} of {tokens} tokens in fp32" + _rounded(result) + ".",
        "",
        *(f"- {name}: {words}" for name, words in result.provenance.items()),
        "",
        *_accuracy(result),
    ]
    for subject in dict.fromkeys(cell.subject for cell in result.cells):
        lines += [f"### {subject}", "", *_table([cell for cell in result.cells if cell.subject == subject]), ""]
    return "\n".join(lines)


def _rounded(result: Result) -> str:
    ties, tokens = result.ties(fixed=False)
    return f", {ties} of {tokens} in 16 bits" if tokens else ""


def _table(cells: list[Cell]) -> list[str]:
    names = list(dict.fromkeys(cell.scenario for cell in cells))
    rows: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        rows.setdefault(str(cell.variant), {})[cell.scenario] = cell
    return [
        f"| policy | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
        *(f"| {variant} | {' | '.join(_shown(row.get(name)) for name in names)} |" for variant, row in rows.items()),
    ]


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    match cell.outcome:
        case Outcome.Passed:
            return f"✓ {cell.tokens}" + (f" ({cell.near_ties} ~)" if cell.near_ties else "")
        case Outcome.Refused:
            return _rule(cell.because)
        case _:
            return "✗"


def _rule(because: str) -> str:
    """Rules' ids, each with the field it names: what stands against two fields is not one thing."""
    return ", ".join(f"`{word}`" for word in because.split(", "))


def _accuracy(result: Result) -> list[str]:
    if not result.accuracy:
        return []
    eager = result.accuracy[0]
    rows = [
        f"| {one.prefill} | {_rule(one.refused) if one.refused else '✗'} | – |"
        if one.refused or one.failed
        else f"| {one.prefill} | {one.nats / one.tokens:.6f} | {one.apart(eager):.5%} |"
        for one in result.accuracy
    ]
    return [
        f"SmolLM2-135M-Instruct, fp32, on {eager.tokens} tokens of Newton's *Opticks* in windows of {WINDOW}, "
        f"{ALLOWED:.1%} from eager allowed "
        "(`InputLogprobsGate` lifted for this: it is what would prove it unneeded):",
        "",
        "| prefill | nats a token | from eager |",
        "|---|---|---|",
        *rows,
        "",
    ]
