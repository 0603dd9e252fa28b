"""What a request asks to change in the logits of its rows before a token is chosen."""

import msgspec


class LogitProcessing(msgspec.Struct, frozen=True, omit_defaults=True):
    """In the order in which it applies: masks, bias, penalties. The front has bounded all of it, and every id is in the
    vocabulary. As OpenAI and vLLM define the fields.
    """

    allowed: list[int] | None = None
    """Only these tokens can be chosen; None: all."""
    bad_words: list[list[int]] = []
    """Sequences of tokens: where the answer ends with all but the last token of one, that last one is masked."""
    min_tokens: int = 0
    """The model's end and the request's stop tokens are masked until the answer has so many tokens."""
    bias: dict[int, float] = {}
    """Added to the logits of tokens."""
    repetition: float = 1.0
    """Of tokens of prompt and answer, logits above 0 are divided by it, others multiplied."""
    frequency: float = 0.0
    """Subtracted from a token's logit as often as the answer has the token."""
    presence: float = 0.0
    """Subtracted once where the answer has the token."""

    @property
    def changes(self) -> bool:
        """Whether any logit can change."""
        return self != NO_PROCESSING

    @property
    def reads_answer(self) -> bool:
        """Whether it counts tokens of the answer."""
        return self.frequency != 0 or self.presence != 0

    @property
    def reads_tokens(self) -> bool:
        """Whether it depends on tokens that came before."""
        return self.reads_answer or self.repetition != 1 or any(len(word) > 1 for word in self.bad_words)


NO_PROCESSING = LogitProcessing()
