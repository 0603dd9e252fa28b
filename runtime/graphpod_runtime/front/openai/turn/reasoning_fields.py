"""Fields about reasoning, as far as the model's chat template reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_runtime.front.requests.errors import invalid
from graphpod_runtime.front.text.chat_template import ChatTemplate

SWITCHES = ("enable_thinking", "thinking")
"""Variables by which templates switch reasoning on and off."""


@dataclass(frozen=True, slots=True)
class ReasoningSwitch:
    """What a request can do about a model's reasoning. `variable` is the one that its chat template reads: an effort or
    a switch; `reasons`: whether answers may hold reasoning.
    """

    reasons: bool
    variable: str | None
    keeps: bool
    """Whether prompts hold the reasoning of earlier turns."""
    limits: bool = False
    """Whether a budget can end the reasoning."""

    @classmethod
    def of(cls, template: ChatTemplate | None, *, reasons: bool, limits: bool = False) -> "ReasoningSwitch":
        """That of a model."""
        known = template.variables if template is not None else frozenset()
        variable = next((name for name in ("reasoning_effort", *SWITCHES) if name in known), None)
        return cls(reasons, variable, template is not None and template.knows_reasoning, limits)

    @property
    def has_effect(self) -> bool:
        """Whether an effort can change an answer: no template without such a variable has one to change."""
        return self.variable is not None


def without_idle_switches(
    template: ChatTemplate | None, variables: Mapping[str, Any], *, reasons: bool
) -> Mapping[str, Any]:
    """The variables but for a switch that is off where nothing could be on: the model does not reason, and its template
    reads no switch. Clients of several models send it to all.
    """
    if reasons or (template is not None and not template.variables.isdisjoint(SWITCHES)):
        return variables
    return {name: value for name, value in variables.items() if not (name in SWITCHES and value is False)}


def with_effort(template: ChatTemplate | None, variables: Mapping[str, Any], effort: str | None) -> Mapping[str, Any]:
    """The template's variables with those that `reasoning_effort` sets, unless the request sets them itself. ApiError
    400 where the template reads none.
    """
    known = template.variables if template is not None else frozenset()
    if effort is None:
        return variables
    if "reasoning_effort" in known:
        return {"reasoning_effort": effort, **variables}
    switch = next((name for name in SWITCHES if name in known), None)
    if switch is None:
        message = "reasoning_effort is not supported by this model: its chat template reads no such variable"
        raise invalid(message, param="reasoning_effort", code="unsupported_parameter")
    return {switch: effort != "none", **variables}
