"""Generation without a server: the scheduler and a runner, nothing between them."""

from collections.abc import Sequence as List

from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.scheduler import Limits, Scheduler
from graphpod_runtime.engine.sequence import Sampling, Sequence


def generate(
    runner: Runner,
    prompts: List[list[int]],
    max_tokens: int,
    sampling: Sampling | None = None,
    ignore_eos: bool = False,
) -> list[list[int]]:
    """The generated tokens of each prompt, at most `max_tokens`, end token included when one was drawn.

    What runs when is what a server would do that got all prompts at once. PromptTooLong names a prompt that is empty
    or leaves no room in maxModelLen, before anything has run; DoesNotFit is for one that the whole cache cannot hold.
    """
    refuse_misfits(prompts, max_tokens, runner.config.max_model_len)
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, max_queue=len(prompts)), runner.eos_ids)
    sequences = [
        Sequence(str(index), list(prompt), len(prompt), max_tokens, sampling or Sampling(), ignore_eos=ignore_eos)
        for index, prompt in enumerate(prompts)
    ]
    for sequence in sequences:
        scheduler.submit(sequence)
    while (batch := scheduler.next()) is not None:
        scheduler.advance(batch, runner.forward(batch))
    return [sequence.tokens[sequence.prompt_len :] for sequence in sequences]


class PromptTooLong(ValueError):
    """A prompt and what it asks for are more than the model's context, or nothing."""


def refuse_misfits(prompts: List[list[int]], max_tokens: int, max_model_len: int) -> None:
    """PromptTooLong for the first prompt that cannot be run."""
    for index, prompt in enumerate(prompts):
        if not prompt or len(prompt) + max_tokens > max_model_len:
            raise PromptTooLong(
                f"prompt {index} has {len(prompt)} tokens and asks for {max_tokens} more; "
                f"it needs 1 or more, and both together at most maxModelLen {max_model_len}"
            )
