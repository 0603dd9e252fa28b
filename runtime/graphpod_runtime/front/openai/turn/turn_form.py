"""What the answer of one request may hold, beyond text."""

from graphpod_runtime.front.openai.turn.tool_fields import ToolUse
from graphpod_runtime.front.requests.errors import invalid
from graphpod_runtime.front.text.turn.family import Family
from graphpod_runtime.front.text.turn.turn_parser import TurnForm

TAIL = 64
"""Tokens of a prompt's end in which the tag that opens reasoning may stand."""


def form_of(family: Family, use: ToolUse | None, prompt_end: str) -> TurnForm:
    """The form of a turn that follows a prompt with this end."""
    reasoning = family.reasoning
    thinks = reasoning is not None and prompt_end.rpartition(reasoning.opens)[2].strip() == ""
    thinks = thinks and reasoning is not None and reasoning.opens in prompt_end
    if use is None or use.mode == "none":
        return TurnForm(reasoning, thinks, harmony=family.harmony)
    tools = {tool.function.name: tool.schema_of_parameters for tool in use.tools}
    if use.mode == "required":
        return TurnForm(reasoning, thinks, family.calls, tools, use.named or "", single=not use.parallel)
    return TurnForm(reasoning, thinks, family.calls, tools, harmony=family.harmony, single=not use.parallel)


def refuse_unreadable(family: Family, use: ToolUse | None) -> None:
    """ApiError 400 where the model may call tools, and its calls could not be read."""
    if use is not None and use.mode == "auto" and family.calls is None and not family.harmony_calls:
        message = (
            "tool_choice auto is not supported: it is not known how this model writes calls, or spec.engine.toolParser "
            'is None. Set that to the model\'s format, or send tool_choice "required"'
        )
        raise invalid(message, param="tool_choice", code="unsupported_parameter")
