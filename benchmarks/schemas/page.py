"""docs/reference/structured-output.md, from the results."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

PAGE = Path("docs/reference/structured-output.md")
OUTCOMES = ("valid", "cut", "unjudged", "refused", "wrong", "ended")

INTRODUCTION = """# Structured output, tried

Written by `make schemas`; not edited by hand. Schemas of other people are drawn by seed and answered by the engine over
a small random model. The model knows nothing, so the grammar alone makes the answers.

- *valid*: the answer stopped, and the `jsonschema` package accepts it.
- *cut*: `max_tokens` came before the end. Such an answer has `finish_reason: "length"`.
- *unjudged*: the `jsonschema` package cannot say, as for patterns that only JavaScript knows.
- *refused*: with 400 and a reason, before anything runs.
- *wrong*: the answer stopped and is not valid. `make schemas` then ends with 1.
"""


def write_page(result: dict[str, Any]) -> None:
    """Writes the page."""
    PAGE.write_text(page(result))


def page(result: dict[str, Any]) -> str:
    """The whole page."""
    verdicts = result["verdicts"]
    sets = list(dict.fromkeys(one["set"] for one in verdicts))
    counts = {name: Counter(one["outcome"] for one in verdicts if one["set"] == name) for name in sets}
    lines = [INTRODUCTION, *(f"- {name}: {words}" for name, words in result["provenance"].items()), ""]
    lines += ["| set | schemas | " + " | ".join(OUTCOMES) + " |", "|---" * (len(OUTCOMES) + 2) + "|"]
    for name in sets:
        row = [str(counts[name][outcome]) for outcome in OUTCOMES]
        lines.append(f"| {name} | {sum(counts[name].values())} | {' | '.join(row)} |")
    seconds = sorted(one["compile_seconds"] for one in verdicts)
    lines += [
        "",
        f"Compiling took {seconds[len(seconds) // 2] * 1e3:.1f} ms in the median, {seconds[-1] * 1e3:.0f} ms at most.",
        "",
        "## Why schemas are refused",
        "",
        "| reason | schemas |",
        "|---|---|",
    ]
    reasons = Counter(_reason(one["reason"]) for one in verdicts if one["outcome"] == "refused")
    lines += [f"| {reason} | {count} |" for reason, count in reasons.most_common(30)]
    return "\n".join(lines) + "\n"


def _reason(text: str) -> str:
    """Without what belongs to one schema."""
    if found := re.match(r"Unimplemented keys: \[(.*)\]", text):
        return "keywords: " + found[1].replace('"', "`")
    text = re.sub(r"'[^']*'|\"[^\"]*\"|/[^ ]*/", "…", text.splitlines()[0])
    return re.sub(r"\d+", "n", text).replace("|", "\\|")[:100]
