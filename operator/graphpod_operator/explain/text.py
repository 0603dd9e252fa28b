"""An explanation as text for a terminal. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum

from graphpod_operator.explain.explanation import Explanation, Verdict, ladder_gaps
from graphpod_operator.explain.notes import Unchecked
from graphpod_policy import Backend, Cost, Decision, Obstacle, Outcome, Phase, Plan, Policy
from graphpod_policy.cost.cost import CEILING, COMPILE_SECONDS
from graphpod_policy.rules import GATES, is_about_built
from graphpod_policy.rules.gates import Gap, closing
from graphpod_policy.rules.policies import NOT_BUILT
from graphpod_policy.start.obstacle import SUSPENDED
from graphpod_policy.units import duration, size

WIDTH = 112
INDENT = 14

RUNS: dict[Policy, str] = {
    Policy.Breakable: "captured in segments, replayed; attention runs between them",
    Policy.Piecewise: "traced once, split at attention, each piece captured and replayed",
    Policy.Full: "one graph for the whole pass, captured and replayed",
    Policy.Disabled: "no graphs: every pass runs eagerly",
}

ROWS = {Phase.Prefill: "tokens", Phase.Decode: "sequences"}

SAID: dict[Outcome, str] = {
    Outcome.Excluded: "excluded",
    Outcome.Adjusted: "adjusted",
    Outcome.Forced: "not proved, but the spec requests it",
    Outcome.Degraded: "weakened",
    Outcome.Refused: "refused",
}


class Ink(Enum):
    """What a colour says."""

    Strong = "1"
    Good = "32"
    Care = "33"
    Bad = "31"
    Faint = "2"


Paint = Callable[[Ink, str], str]

GRAPHS: dict[Verdict, tuple[Ink, str]] = {
    Verdict.AsAsked: (Ink.Good, "as requested"),
    Verdict.Degraded: (Ink.Care, "less than requested; the lines below name the rules"),
}
WITHOUT = {
    True: "It is what would run if the pods could start.",
    False: "It is what the rules would plan if the spec were accepted.",
}
"""What the plan of a service is that cannot start, by whether its spec is accepted."""
GIVE = {Unchecked.Model: "--model-config FILE", Unchecked.Node: "--node gpu=KIND"}
"""What has it checked."""


def plain(_: Ink, text: str) -> str:
    """No colour, for files and pipes."""
    return text


def coloured(ink: Ink, text: str) -> str:
    """Colour, for a terminal."""
    return f"\x1b[{ink.value}m{text}\x1b[0m"


def text(explanation: Explanation, paint: Paint = plain) -> str:
    """The explanation, ending with a newline."""
    manifest, final = explanation.manifest, explanation.final
    lines = [*_verdict(explanation, paint), ""]
    lines += [paint(Ink.Strong, f"{manifest.namespace}/{manifest.name}") + f"  ({manifest.source})", ""]
    if _would(explanation):
        lines += [paint(Ink.Care, f"Nothing below runs. {WITHOUT[explanation.accepted]}"), ""]
    for phase in Phase:
        lines += [*_phase(phase, explanation, paint), ""]
    if shared := _of_every_phase(final.decisions):
        lines += [paint(Ink.Strong, "BOTH PHASES"), *(line for one in shared for line in _decision([one], paint)), ""]
    lines += _block("serves", [explanation.limits.text()])
    if explanation.memory is not None:
        lines += _block("memory", [explanation.memory.text()])
    if explanation.sleep is not None:
        lines += _block("sleep", [explanation.sleep.text()])
    if explanation.attention is not None and explanation.attention.kernels is not None:
        lines += _block("attention", [f"{explanation.attention.kernels}: {explanation.attention.because}"])
    if not explanation.refused:
        lines += _block("start", [_start(explanation)])
    lines += _block("engine", [_engine(explanation)])
    if final.gates and not explanation.refused:
        lines += _block("at run time", ["a batch runs eagerly, and counts under this name, when:"])
        lines += [line for name in final.gates for line in _named(name, GATES[name].because, paint)]
    for note in explanation.notes:
        lines += _block("note", [note])
    return "\n".join(lines) + "\n"


def _phase(phase: Phase, explanation: Explanation, paint: Paint) -> Iterator[str]:
    final, refused = explanation.final, phase in explanation.refused
    row = final.phases[phase]
    yield paint(Ink.Strong, f"{phase.upper():<{INDENT}}") + " → ".join(_steps(phase, explanation))
    if not refused:
        yield from _block("runs", [RUNS[row.planned] + _recorder(final, row.planned)])
    if row.sizes and not refused:
        of_a_rank = " of one rank" if explanation.limits.ranks > 1 else ""
        yield from _block("sizes", [ladder_text(row.sizes, ROWS[phase] + of_a_rank)])
        if found := ladder_gaps(phase, final):
            yield from _block("gaps", [_gaps(row.sizes, found)], paint, Ink.Care)
        yield from _block("costs", [_cost(final.costs[phase])])
    shared = {_words(one) for one in _of_every_phase(final.decisions)}
    decisions = [one for one in final.decisions if one.phase is phase and _words(one) not in shared]
    for alike in _alike(decisions):
        yield from _decision(alike, paint)


def _steps(phase: Phase, explanation: Explanation) -> Iterator[str]:
    """From what is requested to what would run, as far as it comes."""
    planned, there = explanation.plan.phases[phase], explanation.there
    yield f"requested {planned.requested}"
    if phase in explanation.refused:
        yield "refused"
        return
    yield f"planned {planned.planned}" if explanation.accepted else f"would plan {planned.planned}"
    if there is not None:
        run = there.phases[phase].planned
        yield f"would run {run}" if _would(explanation) else f"expected {run}"


def _would(explanation: Explanation) -> bool:
    """Whether nothing of the plan runs, for another reason than that no pods are asked for."""
    return any(one.reason != SUSPENDED for one in explanation.obstacles)


def _of_every_phase(decisions: Iterable[Decision]) -> list[Decision]:
    """One of each set of decisions that exclude no policy and say the same of every phase."""
    found: dict[tuple[str, ...], dict[Phase, Decision]] = {}
    for one in decisions:
        if one.outcome is Outcome.Adjusted:
            found.setdefault(_words(one), {})[one.phase] = one
    return [phases[Phase.Prefill] for phases in found.values() if len(phases) == len(Phase)]


def _words(decision: Decision) -> tuple[str, ...]:
    return decision.rule, decision.outcome, decision.because, decision.hint


def _alike(decisions: list[Decision]) -> list[list[Decision]]:
    """Decisions that differ in nothing but the candidate, together."""
    groups: dict[tuple[str, Outcome, str], list[Decision]] = {}
    for decision in decisions:
        groups.setdefault((decision.rule, decision.outcome, decision.because), []).append(decision)
    return list(groups.values())


def _decision(alike: list[Decision], paint: Paint) -> Iterator[str]:
    first = alike[0]
    what = SAID[Outcome.Refused if first.rule == NOT_BUILT and first.outcome is Outcome.Forced else first.outcome]
    if first.outcome is not Outcome.Adjusted:
        what = f"{', '.join(decision.policy for decision in alike if decision.policy)} {what}"
    built = "" if is_about_built(first.rule) else " (its feature is not built yet)"
    ink = Ink.Good if first.outcome is Outcome.Adjusted else Ink.Care
    yield from _named(f"{paint(ink, first.rule)}: {what}{built}", first.because, paint)
    yield from _wrapped(f"→ {first.hint}", INDENT + 4, paint, Ink.Faint)


def _named(name: str, because: str, paint: Paint) -> Iterator[str]:
    yield " " * INDENT + "· " + name
    yield from _wrapped(because, INDENT + 4, paint, None)


def ladder_text(sizes: Sequence[int], rows: str) -> str:
    """A ladder in one line, a long one by its ends."""
    listed = " ".join(map(str, sizes)) if len(sizes) <= 12 else f"{_some(sizes[:8])} … {_some(sizes[-3:])}"
    return f"{len(sizes)} of up to {sizes[-1]} {rows}: {listed}"


def _gaps(sizes: tuple[int, ...], found: tuple[Gap, ...]) -> str:
    share = sum(gap.last - gap.first + 1 for gap in found) / sizes[-1]
    return (
        f"{share:.0%} of the lengths up to {sizes[-1]} run eagerly (PaddingGate): {gaps_text(found)}; "
        f"add sizes {', '.join(map(str, closing(sizes)))} to spec.graph.sizes.prefill"
    )


def gaps_text(found: Iterable[Iterable[int]]) -> str:
    """Spans of lengths, from the first to the last."""
    spans = ((first, last) for first, last in found)
    return ", ".join(f"{first}–{last}" if last > first else str(first) for first, last in spans)


def _some(sizes: Iterable[int]) -> str:
    return " ".join(map(str, sizes))


def _cost(cost: Cost) -> str:
    seconds = f"{duration(cost.seconds)} to capture, {duration(cost.check_seconds)} to check"
    return f"about {size(cost.bytes)} of memory; {seconds}"


def _start(explanation: Explanation) -> str:
    budget, captures = explanation.final.budget, any(row.sizes for row in explanation.final.phases.values())
    compiling = COMPILE_SECONDS[explanation.final.compile]
    each = f"{CEILING} times the costs above" + (f" + {compiling} s to compile" if compiling else "")
    spent = f"2 captures of up to {budget.capture_seconds} s ({each}), one that measures and one that is kept"
    checks = f"{budget.check_seconds} s to check ({CEILING} times the costs above)"
    part = f": {spent}; {checks}; the rest: import and load" if captures else ""
    return (
        f"Ready within {duration(budget.start_seconds)}, a careful estimate{part}; "
        f"the kubelet ends a start after {duration(explanation.start_limit)} (spec.engine.startTimeout)"
    )


def _engine(explanation: Explanation) -> str:
    final = explanation.final
    asked = "" if final.compile is final.request.compile else f" (requested {final.request.compile})"
    dtype = explanation.dtype or "dtype Auto"
    return (
        f"prefill in chunks of {explanation.limits.chunk} tokens, {dtype}, layers compiled: {final.compile}{asked}, "
        f"configuration {explanation.config_hash}, rules {final.resolver_revision}"
    )


def _recorder(plan: Plan, policy: Policy) -> str:
    recorded = plan.backend is Backend.Recorder and policy is not Policy.Disabled
    return " (by the CPU recorder: no speed-up)" if recorded else ""


def _verdict(explanation: Explanation, paint: Paint) -> Iterator[str]:
    """Whether a pod can start, with a line for each obstacle; that it takes long; then how graphs compare with the
    request.
    """
    yield from (paint(Ink.Bad, line) for line in obstacle_lines(explanation.obstacles))
    if not explanation.obstacles:
        yield _can(explanation, paint)
        slow = textwrap.wrap(f"slow: {explanation.slow}", WIDTH, subsequent_indent=" " * 6) if explanation.slow else ()
        yield from (paint(Ink.Care, line) for line in slow)
    if explanation.refused:
        phases = " and ".join(explanation.refused)
        yield paint(Ink.Bad, f"Graphs: refused for {phases}; the lines below name the rules.")
        return
    ink, said = GRAPHS[explanation.graphs]
    yield paint(ink, f"{'Graphs' if explanation.accepted else 'Graphs that it would plan'}: {said}.")


def _can(explanation: Explanation, paint: Paint) -> str:
    if not explanation.unchecked:
        return paint(Ink.Good, "can start")
    what = " and ".join(f"the {one}" for one in explanation.unchecked)
    how = " ".join(GIVE[one] for one in explanation.unchecked)
    return paint(Ink.Care, f"can start by its spec; not checked: {what}. Check with {how}")


def obstacle_lines(obstacles: Iterable[Obstacle]) -> Iterator[str]:
    """The obstacles to a start, each with its next step."""
    for one in obstacles:
        yield from textwrap.wrap(f"cannot start: {one.reason}: {one}", WIDTH, subsequent_indent=" " * INDENT)


def summary(explanations: Sequence[Explanation], paint: Paint = plain) -> str:
    """Of several services, one line for each: the first obstacle to a start, or how graphs compare."""
    cannot = sum(one.verdict is Verdict.CannotStart for one in explanations)
    by_spec = " by their specs" if any(one.unchecked for one in explanations) else ""
    lines = [f"{len(explanations)} services, " + (f"{cannot} cannot start" if cannot else f"all can start{by_spec}")]
    names = [f"{one.manifest.namespace}/{one.manifest.name}" for one in explanations]
    for name, one in zip(names, explanations, strict=True):
        lines.append(f"  {name:<{max(map(len, names))}}  " + _short(one, paint))
    return "\n".join(lines) + "\n\n"


def _short(explanation: Explanation, paint: Paint) -> str:
    if explanation.obstacles:
        return paint(Ink.Bad, f"cannot start: {explanation.obstacles[0].reason}")
    can = "can start by its spec" if explanation.unchecked else "can start"
    ink, _ = GRAPHS[explanation.graphs]
    less = ", with less than requested of graphs" if ink is Ink.Care else ""
    if explanation.slow is None:
        return paint(ink, can + less)
    return paint(Ink.Care, f"{can}{less}; slow: up to {duration(explanation.final.budget.start_seconds)}")


def _block(title: str, texts: list[str], paint: Paint = plain, ink: Ink | None = None) -> Iterator[str]:
    for index, each in enumerate(texts):
        head = f"  {title:<{INDENT - 2}}" if index == 0 else " " * INDENT
        for number, line in enumerate(textwrap.wrap(each, WIDTH - INDENT, break_on_hyphens=False)):
            yield (head if number == 0 else " " * INDENT) + (paint(ink, line) if ink else line)


def _wrapped(each: str, indent: int, paint: Paint, ink: Ink | None) -> Iterator[str]:
    for line in textwrap.wrap(each, WIDTH - indent, break_on_hyphens=False):
        yield " " * indent + (paint(ink, line) if ink else line)
