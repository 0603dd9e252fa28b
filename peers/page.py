"""docs/reference/api-compatibility.md, from a result."""

from collections import defaultdict
from pathlib import Path

from peers.refusals import refusals
from peers.result import FAILED, PASSED, REFUSED, Result

PAGE = Path("docs/reference/api-compatibility.md")
TITLES = {
    "vllm": "vLLM: tests of its OpenAI, Anthropic and token endpoints",
    "openai": "openai-python: tests of its API resources",
    "inference-perf": "inference-perf: its tests against a real server",
    "provider-check": "trustedrouter-provider-check",
}

INTRODUCTION = """# API compatibility

`make peer-suites` writes this page. It runs test suites of other projects against our engine with real weights. The
suites come from the Python package index, and run as they are.

- **Passed**: the test's own assertions hold, those about the answer's body included.
- **Refused**: the test is in the list below, with a reason. A refused test that passes is a failure, but for those
  that assert what a model says or draws: they may pass by chance.
- **Failed**: anything else, and a test that skips itself.

Between suite and server stands an adapter (`peers/adapter.py`) that renames models and caps the tokens of an answer. It
changes no answer. vLLM's tests start vLLM by its command line: a stand-in starts our engine instead.
"""


def page(result: Result) -> str:
    """The whole page."""
    return "\n".join(
        [INTRODUCTION, *_summary(result), *(_suite(result, name) for name in _names(result)), *_refused(result)]
    )


def _names(result: Result) -> list[str]:
    return list(dict.fromkeys(case.suite for case in result.cases))


def _summary(result: Result) -> list[str]:
    rows = [
        f"| [{name}](#{_anchor(TITLES[name])}) | {result.sources[name]} | {counts.total()} | {counts[PASSED]} | "
        f"{counts[FAILED]} | {counts[REFUSED]} |"
        for name in _names(result)
        for counts in [result.counts(name)]
    ]
    return [
        "| suite | version | tests | passed | failed | refused |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        *(f"- {name}: {words}" for name, words in result.provenance.items()),
        "",
    ]


def _suite(result: Result, name: str) -> str:
    files: dict[str, list[str]] = defaultdict(list)
    for case in result.cases:
        if case.suite == name:
            files[case.test.split("::")[0]].append(case.outcome)
    lines = [f"## {TITLES[name]}", "", "| file | passed | failed | refused |", "|---|---|---|---|"]
    for file, outcomes in files.items():
        lines.append(f"| `{file}` | {' | '.join(str(outcomes.count(one)) for one in (PASSED, FAILED, REFUSED))} |")
    failed = [case for case in result.cases if case.suite == name and case.outcome == FAILED]
    if failed:
        lines += ["", "Failed:", "", *(f"- `{case.test}`: `{_short(case.why)}`" for case in failed)]
    return "\n".join([*lines, ""])


def _refused(result: Result) -> list[str]:
    by_reason: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for case in result.cases:
        if case.outcome == REFUSED:
            file, _, test = case.test.partition("::")
            by_reason[case.why][f"{case.suite}, `{file.rpartition('/')[2]}`"].append(test)
    lines = ["## Refused", ""]
    for reason in dict.fromkeys(one.reason for one in refusals() if one.reason in by_reason):
        tests = by_reason[reason]
        lines += [f"### {reason}", "", f"{sum(map(len, tests.values()))} tests.", ""]
        lines += [f"- {file}: {', '.join(f'`{test}`' for test in names)}" for file, names in tests.items()]
        lines.append("")
    return lines


def _short(why: str) -> str:
    return why.replace("`", "'").replace("|", "/")[:160]


def _anchor(title: str) -> str:
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")
