"""Two runs of one schedule whose passes are not the same ones, compared by the texts of their requests: drafts give a
request several tokens in a pass."""

from collections import defaultdict

from graphpod_runtime.engine.schedule.drafting import DraftsYielded
from graphpod_runtime.wire.messages import Logprob
from truth.schedule.choice import rivals
from truth.schedule.recorded_schedule import Difference, RecordedSchedule, behind, distance


def compare_texts(record: RecordedSchedule, other: RecordedSchedule, near: float) -> Difference:
    """`other` held to `record`, token by token. A token that differs is a near-tie as in `compare`, and what follows it
    in that request is another text, which cannot be compared; any other that differs is wrong.
    """
    total, wanted, got = Difference(), _answers(record), _answers(other)
    for id, sequence in record.sequences.items():
        expected, found = (one.tokens[sequence.prompt_len :] for one in (sequence, other.sequences[id]))
        if len(expected) != len(found):
            where = f"request {id} has {len(found)} tokens, the record {len(expected)}"
            total += Difference(1, wrong=1, first=where)
        for place, (token, its) in enumerate(zip(expected, found, strict=False)):
            end = sequence.prompt_len + place
            scored = record.scores(id, wanted[id][place], end)
            if token != its:
                tie = its in rivals(scored, near)
                where = f"decode of request {id} behind {end} tokens: {its} is {behind(scored, its)}"
                total += Difference(1, near_ties=int(tie), wrong=int(not tie), first="" if tie else where)
                break
            total += Difference(1)
            if other.wants.answer is not None:
                total += Difference(scored=1, worst=distance(wanted[id][place], got[id][place]))
    return total


def _answers(recorded: RecordedSchedule) -> dict[str, list[Logprob]]:
    """The log-probabilities of each request's tokens, in their order; behind its end may be more."""
    found: dict[str, list[Logprob]] = defaultdict(list)
    for one in recorded.passes:
        yielded = one.yielded
        more = yielded.more_answers if isinstance(yielded, DraftsYielded) else ()
        for index, ((id, _, _), answer) in enumerate(zip(one.rows, yielded.answers, strict=True)):
            found[id] += [logprob for logprob in (answer, *(more[index] if more else ())) if logprob is not None]
    return found
