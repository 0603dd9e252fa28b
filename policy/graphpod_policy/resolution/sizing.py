"""From what was asked to the ladder of one phase: schedule, clamp, alignment, and the cuts to device and budget."""

from math import inf, lcm
from typing import NamedTuple

from graphpod_policy import limits
from graphpod_policy.cost.cost import COMPILE_SECONDS, Cost, ladder_costs
from graphpod_policy.enums import CompileMode, Device, Phase, Severity
from graphpod_policy.facts import NOTHING_KNOWN, Facts
from graphpod_policy.features import Features, GraphRequest
from graphpod_policy.ladder.ladder import (
    CPU_PREFILL_MAX,
    LATENT_ATTENTION_MAX,
    PROMPT_LEAST,
    Ladder,
    aligned,
    cpu_decode_ladder,
    decode_ladder,
    memory_row,
    prefill_ladder,
    verify_ladder,
)
from graphpod_policy.rules import BY_NAME, Case, Rule, speaking
from graphpod_policy.units import size

UNITS = {Phase.Prefill: "tokens", Phase.Decode: "sequences"}

Change = tuple[Rule, str]
"""The row that changed a ladder, and what it did."""

Changes = tuple[Change, ...]


def prefill_chunk(features: Features, request: GraphRequest) -> int:
    """Most tokens of one prefill pass: the user's, else the largest asked size, else the device's default."""
    asked = features.prefill_chunk or max(request.prefill_sizes or (0,))
    return min(asked, _longest_pass(features)) if asked else default_chunk(features)


def default_chunk(features: Features) -> int:
    """The same of a service that asks for neither."""
    default = CPU_PREFILL_MAX if features.device is Device.Cpu else memory_row(None).prefill
    return min(default, _longest_pass(features))


def _longest_pass(features: Features, facts: Facts = NOTHING_KNOWN) -> int:
    """Tokens of as many prompts as decode together, each as long as can be."""
    return limits.context(features, facts) * limits.batch(features, facts)


def default_ladder(phase: Phase, features: Features, chunk: int) -> Ladder:
    """The ladder of a service that asks for no sizes, before any rule adjusts it."""
    if phase is Phase.Prefill:
        return prefill_ladder(chunk)
    if features.device is Device.Cpu:
        return cpu_decode_ladder(limits.decode_sequences(features))
    most = min(limits.decode_sequences(features), memory_row(None).decode)
    return decode_ladder(most) if features.speculative is None else verify_ladder(most)


def asked_ladder(case: Case, asked: Ladder | None, chunk: int) -> tuple[Ladder, Changes]:
    """The sizes of a phase that fit one pass, rounded as rules ask, and what was changed. None: the default ladder."""
    phase = case.phase
    most = chunk if phase is Phase.Prefill else limits.decode_sequences(case.features)
    sizes = default_ladder(phase, case.features, chunk) if asked is None else tuple(sorted(set(asked)))
    fitting, clamped = _clamped(sizes, phase, most)
    changes = list(clamped)
    multiples = [(rule, rule.multiple(case)) for rule in speaking(case, Severity.Adjust) if rule.multiple is not None]
    rounded = aligned(fitting, lcm(*(multiple for _, multiple in multiples)), most)
    changes += [
        (rule, f"{rule.why(case)}; sizes were rounded to multiples of {multiple}")
        for rule, multiple in multiples
        if any(size % multiple for size in fitting)
    ]
    return rounded, tuple(changes)


def pass_cut(sizes: Ladder, case: Case) -> tuple[Ladder, Changes]:
    """A prefill ladder without the sizes that no pass can have, once the model's own length is known and the service
    says none.
    """
    features, facts = case.features, case.facts
    if case.phase is not Phase.Prefill or features.max_model_len is not None:
        return sizes, ()
    return _clamped(sizes, case.phase, _longest_pass(features, facts))


def device_cut(sizes: Ladder, case: Case, chunk: int, *, is_own: bool) -> tuple[Ladder, Changes]:
    """A default ladder without the sizes that this device's row of the memory table does not have, nor, unless the
    chunk `is_own`, the user's, those that no prompt fills: larger passes compute no faster, and a start captures and
    checks them. A ladder of the user's own is left alone.
    """
    phase, features, facts = case.phase, case.features, case.facts
    default, _ = asked_ladder(case, None, chunk)
    if features.device is Device.Cpu or sizes != default[: len(sizes)]:
        return sizes, ()
    row = memory_row(facts.gpu_memory_bytes)
    by_memory = "on a GPU of this memory"
    if phase is Phase.Prefill:
        ends = [(row.prefill, by_memory)]
        if facts.model is not None and facts.model.latent_attention:
            ends.append((LATENT_ATTENTION_MAX, "with latent attention"))
        if not is_own:
            prompt = max(limits.context(features, facts), PROMPT_LEAST)
            ends += [(size, "with contexts this short") for size in sizes if size >= prompt][:1]
    elif features.max_batch is None:
        ends = [(limits.batch(features, facts), by_memory)]
    else:
        ends = [(row.decode_split if features.tensor >= 4 else row.decode, by_memory)]
    most, why = min(ends, key=lambda end: end[0])
    kept = tuple(size for size in sizes if size <= most)
    if kept == sizes:
        return sizes, ()
    return kept, ((BY_NAME["LadderDevice"], f"the default ladder ends lower {why}: at most {most} {UNITS[phase]}"),)


def _clamped(sizes: Ladder, phase: Phase, most: int) -> tuple[Ladder, Changes]:
    """`sizes` that one pass of at most `most` rows can have."""
    fitting = tuple(size for size in sizes if size <= most)
    if fitting == sizes:
        return sizes, ()
    dropped = ", ".join(str(size) for size in sizes if size > most)
    because = f"one {phase} pass holds at most {most} {UNITS[phase]}: dropped {dropped}"
    return fitting, ((BY_NAME["LadderClamp"], because),)


class Allowance(NamedTuple):
    """What captures may take, and what the decode ladder `reserved` of it. Decode may have half; prefill has what
    decode leaves. The shares depend on nothing that a fact can weaken, so that one phase's loss is not the other's
    gain.
    """

    bytes: float
    seconds: float
    reserved: Cost

    @classmethod
    def of(cls, bytes: int | None, seconds: int | None, compile: CompileMode, reserved: Cost) -> "Allowance":
        """None: no limit. Compiling takes its part of the time first."""
        return cls(
            inf if bytes is None else bytes,
            inf if seconds is None else max(0, seconds - COMPILE_SECONDS[compile]),
            reserved,
        )

    def share(self, phase: Phase) -> tuple[float, float]:
        """Bytes and seconds for one phase."""
        if phase is Phase.Decode:
            return self.bytes / 2, self.seconds / 2
        return (
            self.bytes - min(self.reserved.bytes, self.bytes / 2),
            self.seconds - min(self.reserved.seconds, self.seconds / 2),
        )


def budget_cut(sizes: Ladder, case: Case, allowance: Allowance) -> tuple[Ladder, Changes]:
    """`sizes` without the largest ones that exceed the share of the case's phase, and what was dropped."""
    most_bytes, most_seconds = allowance.share(case.phase)
    if most_bytes == most_seconds == inf:
        return sizes, ()
    costs = ladder_costs(case.phase, case.policy, sizes, case.features, case.facts.model)
    in_memory = _fitting(sizes, [cost.bytes <= most_bytes for cost in costs])
    in_time = _fitting(in_memory, [cost.seconds <= most_seconds for cost in costs])
    changes: list[Change] = []
    if in_memory != sizes:
        needed, allowed = size(costs[-1].bytes), size(int(most_bytes))
        changes.append((BY_NAME["LadderMemory"], _because(sizes, in_memory, case, needed, allowed)))
    if in_time != in_memory:
        needed, allowed = f"{costs[len(in_memory) - 1].seconds:.0f} s", f"{most_seconds:.0f} s"
        changes.append((BY_NAME["LadderTime"], _because(in_memory, in_time, case, needed, allowed)))
    return in_time, tuple(changes)


def _fitting(sizes: Ladder, fits: list[bool]) -> Ladder:
    """The longest lower part of `sizes` that fits; a longer part never costs less."""
    return sizes[: fits[: len(sizes)].count(True)]


def _because(before: Ladder, after: Ladder, case: Case, needed: str, allowed: str) -> str:
    kept = f"kept {len(after)} of {len(before)} sizes, up to {after[-1]} {UNITS[case.phase]}" if after else "kept none"
    return f"{case.phase} captures need about {needed}, {allowed} are allowed: {kept}"
