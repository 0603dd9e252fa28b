"""Which formats a model writes: named, or found by the words of its chat template."""

from dataclasses import dataclass

from graphpod_runtime.front.text.turn import harmony
from graphpod_runtime.front.text.turn.formats import (
    HARMONY,
    HARMONY_SIGN,
    REASONING_FORMATS,
    TOOL_FORMATS,
    ReasoningFormat,
    ToolFormat,
)

AUTO = "Auto"
DEFAULT = "Hermes"
"""The format of models whose template has no place for tools: they are asked for it."""


@dataclass(frozen=True, slots=True)
class Family:
    """What one model's turns may hold."""

    calls: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    harmony_calls: bool = False
    harmony_reasoning: bool = False

    @classmethod
    def of(cls, calls: str, reasoning: str, template: str, *, knows_tools: bool) -> "Family":
        """The formats of these names; `Auto` is what `template` shows, `None` is none. `knows_tools`: whether the
        template writes tools.
        """
        tools = {form.name: form for form in TOOL_FORMATS}
        thoughts = {form.name: form for form in REASONING_FORMATS}
        if calls == AUTO:
            calls = _calls_in(template) if knows_tools else HARMONY if HARMONY_SIGN in template else DEFAULT
        if reasoning == AUTO:
            reasoning = _reasoning_in(template)
        return cls(tools.get(calls), thoughts.get(reasoning), calls == HARMONY, reasoning == HARMONY)

    @property
    def harmony(self) -> bool:
        """Whether turns are channels."""
        return self.harmony_calls or self.harmony_reasoning

    @property
    def reasons(self) -> bool:
        """Whether turns may hold reasoning."""
        return self.reasoning is not None or self.harmony

    @property
    def marks(self) -> frozenset[str]:
        """The texts by which its formats are read, which a tokenizer may have as special tokens."""
        found = set(self.calls.marks if self.calls else ())
        if self.reasoning:
            found |= {self.reasoning.opens, self.reasoning.closes}
        return frozenset(found | harmony.MARKS if self.harmony else found)


def _calls_in(template: str) -> str:
    if HARMONY_SIGN in template:
        return HARMONY
    fits = (form.name for form in TOOL_FORMATS if any(all(map(template.__contains__, sign)) for sign in form.signs))
    return next(fits, "")


def _reasoning_in(template: str) -> str:
    if HARMONY_SIGN in template:
        return HARMONY
    return next((form.name for form in REASONING_FORMATS if form.opens in template or form.closes in template), "")
