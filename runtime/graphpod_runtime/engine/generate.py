"""Generation without a server: a batch of prompts through the runner, prefill chunk by chunk, decode together."""

from collections import deque
from collections.abc import Iterable

from graphpod_runtime.cache.pages import OutOfPages
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.sequence import Chunk, DecodeBatch, PrefillBatch, Sampling, Sequence


def generate(
    runner: Runner,
    prompts: Iterable[list[int]],
    max_tokens: int,
    sampling: Sampling | None = None,
    ignore_eos: bool = False,
) -> list[list[int]]:
    """The generated tokens of each prompt, at most `max_tokens`, end token included when one was drawn.

    At most maxBatch sequences run at a time, each with the pages of its whole length. ValueError for a prompt that
    is empty or leaves no room in maxModelLen; OutOfPages for one that the whole cache cannot hold.
    """
    config = runner.config
    waiting: deque[Sequence] = deque()
    for index, prompt in enumerate(prompts):
        if not prompt or len(prompt) + max_tokens > config.max_model_len:
            raise ValueError(
                f"prompt {index} has {len(prompt)} tokens and asks for {max_tokens} more; "
                f"it needs 1 or more, and both together at most maxModelLen {config.max_model_len}"
            )
        waiting.append(
            Sequence(str(index), list(prompt), len(prompt), max_tokens, sampling or Sampling(), ignore_eos=ignore_eos)
        )
    everyone = tuple(waiting)
    running: list[Sequence] = []
    while waiting or running:
        while waiting and len(running) < config.max_batch:
            try:
                waiting[0].pages = runner.pages.take(-(-(waiting[0].prompt_len + max_tokens) // config.page_size))
            except OutOfPages:
                if not running:
                    raise
                break
            running.append(waiting.popleft())
            _prefill(runner, running[-1])
        running = _settle(runner, running)
        if running:
            batch = DecodeBatch(tuple(running))
            for sequence, token in zip(running, runner.forward(batch), strict=True):
                sequence.computed = len(sequence.tokens)
                sequence.tokens.append(token)
            running = _settle(runner, running)
    return [sequence.tokens[sequence.prompt_len :] for sequence in everyone]


def _prefill(runner: Runner, sequence: Sequence) -> None:
    """Runs the prompt and appends its first token."""
    end = len(sequence.tokens)
    while sequence.computed < end:
        chunk = Chunk(sequence, sequence.computed, min(end, sequence.computed + runner.config.prefill_chunk))
        (token,) = runner.forward(PrefillBatch((chunk,)))
        sequence.computed = chunk.end
    sequence.tokens.append(token)


def _settle(runner: Runner, running: list[Sequence]) -> list[Sequence]:
    """The sequences that go on; the pages of the others are freed."""
    going = []
    for sequence in running:
        stopped = sequence.tokens[-1] in runner.eos_ids and not sequence.ignore_eos
        if stopped or len(sequence.tokens) - sequence.prompt_len >= sequence.max_tokens:
            runner.pages.free(sequence.pages)
            sequence.pages = []
        else:
            going.append(sequence)
    return going
