"""Generation without a server: the scheduler and a runner, nothing between them."""

from collections.abc import Sequence as List
from dataclasses import dataclass

from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Progress, Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.wire.bounds import outside
from graphpod_runtime.wire.messages import FinishReason, Logprob


@dataclass(frozen=True, slots=True)
class Answer:
    """What one prompt led to: its tokens, end token included when one was drawn, and the log-probabilities that were
    asked for: of the answer's tokens, and of the prompt's from `prompt_start` (at least 1) on.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[Logprob, ...] = ()
    prompt_logprobs: tuple[Logprob, ...] = ()


def answers(
    runner: Runner,
    prompts: List[list[int]],
    max_tokens: int,
    sampling: Sampling | None = None,
    wants: LogprobRequest | None = None,
    ignore_eos: bool = False,
) -> list[Answer]:
    """The answer to each prompt, at most `max_tokens`.

    What runs when is what a server would do that got all prompts at once. PromptTooLong names a prompt that is empty
    or leaves no room in maxModelLen, NotInModel a token id that the model does not have, both before anything has run;
    DoesNotFit is for one that the whole cache cannot hold. NoToken: all have run, and one had logits that are not
    finite.
    """
    refuse_misfits(prompts, max_tokens, runner.config.max_model_len)
    for prompt in prompts:
        if (message := outside(prompt, runner.vocabulary)) is not None:
            raise NotInModel(message)
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, max_queue=len(prompts)), runner.eos_ids)
    sequences = [
        Sequence(
            str(index),
            list(prompt),
            len(prompt),
            max_tokens,
            sampling or Sampling(),
            ignore_eos=ignore_eos,
            wants=wants or LogprobRequest(),
        )
        for index, prompt in enumerate(prompts)
    ]
    logprobs: dict[str, list[Logprob]] = {sequence.id: [] for sequence in sequences}
    for sequence in sequences:
        scheduler.submit(sequence)
    failed: list[Progress] = []
    run_ahead = RunAhead(scheduler, runner)
    while run_ahead.busy:
        for progress in run_ahead.turn():
            if progress.finish is FinishReason.Error:
                failed.append(progress)
            if progress.logprob is not None:
                logprobs[progress.sequence.id].append(progress.logprob)
    if failed:
        raise NoToken(f"prompt {failed[0].sequence.id}: {failed[0].message}")
    return [
        Answer(
            tuple(sequence.tokens[sequence.prompt_len :]),
            tuple(logprobs[sequence.id]),
            tuple(sequence.prompt_logprobs),
        )
        for sequence in sequences
    ]


def generate(
    runner: Runner,
    prompts: List[list[int]],
    max_tokens: int,
    sampling: Sampling | None = None,
    ignore_eos: bool = False,
) -> list[list[int]]:
    """The tokens of `answers`."""
    found = answers(runner, prompts, max_tokens, sampling, ignore_eos=ignore_eos)
    return [list(answer.tokens) for answer in found]


class NotInModel(ValueError):
    """A token id that the model's embedding does not have."""


class NoToken(ArithmeticError):
    """The model gave logits that are not finite."""


class PromptTooLong(ValueError):
    """A prompt and what it asks for are more than the model's context, or nothing."""


def refuse_misfits(prompts: List[list[int]], max_tokens: int, max_model_len: int) -> None:
    """PromptTooLong for the first prompt that cannot be run."""
    for index, prompt in enumerate(prompts):
        if not prompt or len(prompt) + max_tokens > max_model_len:
            raise PromptTooLong(
                f"prompt {index} has {len(prompt)} tokens and requests {max_tokens} more; "
                f"it needs 1 or more, and both together at most maxModelLen {max_model_len}"
            )
