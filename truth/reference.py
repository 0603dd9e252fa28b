"""Eager over one subject: what every other variant is compared with, and how near it must be."""

from dataclasses import dataclass, field

from graphpod_runtime.engine.offline import answers
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.sequence import LogprobRequest
from truth import models
from truth.axes import Variant
from truth.engines import compiled
from truth.scenarios import Scenario
from truth.schedule.choice import rivals
from truth.schedule.recorded_schedule import Difference, RecordedSchedule, distance

NEAR_TIE = 1e-3
"""In fp32: a token this little behind eager's likeliest may take its place. Log-probabilities differ by less."""
ROUNDING = 4
"""In 16 bits: times what another shape of the same computation does to eager's log-probabilities."""


@dataclass(slots=True)
class Reference:
    """Eager over one subject. `all_rivals`: records name every token of the vocabulary for each that was chosen."""

    runner: Runner
    vocab: int
    """Tokens that a record may name: a vocabulary that ranks divide is larger than others."""
    all_rivals: bool = False
    stages: int = 1
    """Of the pipelines that it is compared with: its passes are those of their schedule."""
    near: float = NEAR_TIE
    """How far another token, or a log-probability, may be from eager's."""
    near_compiled: float = NEAR_TIE
    """The same for compiled code, which keeps in 32 bits what eager rounds to 16 after every step: no batch shape shows
    that. What a unit or two in the last place of every weight do to eager is of its kind, and of the same size."""
    recorded: dict[str, RecordedSchedule] = field(default_factory=dict)

    def near_of(self, variant: Variant) -> float:
        """What `variant` is held to."""
        return self.near_compiled if compiled(variant) else self.near

    def rivals(self, scenario: Scenario) -> int:
        """How many tokens a record names for each that was chosen."""
        return self.vocab if self.all_rivals or scenario.rivals == models.VOCAB else scenario.rivals

    def of(self, scenario: Scenario) -> RecordedSchedule:
        """Eager's record of `scenario`."""
        name = scenario.like or scenario.name
        if name not in self.recorded:
            wants = LogprobRequest(max(self.rivals(scenario), scenario.wants.answer or 0), scenario.wants.prompt)
            recorded = scenario.recorded(self.runner, wants, stages=self.stages)
            scenario.run(recorded)
            self.recorded[name] = recorded
        return self.recorded[name]


def alone(reference: Reference, scenario: Scenario) -> Difference:
    """Eager's own record compared with its texts computed again: each alone, and generated tokens as if they were
    prompt."""
    record, total = reference.of(scenario), Difference()
    again = {
        id: answers(reference.runner, [sequence.tokens], 1, wants=LogprobRequest(prompt=reference.rivals(scenario)))[
            0
        ].prompt_logprobs
        for id, sequence in record.sequences.items()
    }
    for one in record.passes:
        for (id, _, end), token, logprob in zip(one.rows, one.yielded.tokens, one.yielded.answers, strict=True):
            if logprob is None or end > len(again[id]):
                continue  # the last token of a text has no row after it
            alone = again[id][end - 1]
            assert alone.token == token
            here, there = (record.scores(id, one, end) for one in (logprob, alone))
            best = max(there, key=there.__getitem__)
            tie = best in rivals(here, reference.near) or token in rivals(there, reference.near)
            apart = distance(alone, logprob)
            total += Difference(1, int(best != token and tie), int(best != token and not tie), 1, apart)
        for (id, start, _), prompt in zip(one.rows, one.yielded.prompts, strict=False):
            for offset, logprob in enumerate(prompt):
                total += Difference(scored=1, worst=distance(again[id][start + offset], logprob))
    return total
