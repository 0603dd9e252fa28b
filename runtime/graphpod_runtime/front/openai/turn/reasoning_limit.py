"""How many tokens of a turn may be reasoning."""

from collections.abc import Sequence

from graphpod_runtime.front.requests.errors import invalid
from graphpod_runtime.front.text.tokenizer import Tokenizer
from graphpod_runtime.front.text.turn.turn_parser import TurnForm
from graphpod_runtime.wire.messages import ReasoningLimit


def reasoning_limit(
    asked: tuple[str, int] | None, form: TurnForm, allowed: Sequence[int] | None, tokenizer: Tokenizer
) -> ReasoningLimit | None:
    """What the engine does where a field asks for so many tokens of reasoning at most. ApiError 400 for a model whose
    reasoning cannot be ended, and where what ends it is not among the `allowed` tokens.
    """
    if asked is None:
        return None
    param, tokens = asked
    if form.reasoning is None:
        why = "it reasons in channels" if form.harmony else "it does not reason, or spec.engine.reasoningParser is None"
        message = f"{param} is not supported by this model: {why}; leave the field out"
        raise invalid(message, param=param, code="unsupported_parameter")
    tags = form.reasoning
    if allowed is not None and not {*tokenizer.encode(tags.closes, specials=False)} <= {*allowed}:
        message = (
            f"{param} ends the reasoning by {tags.closes}, whose tokens are not all in allowed_token_ids; add them"
        )
        raise invalid(message, param=param)
    ends = form.calls.opens if form.calls is not None and form.tools is not None and form.forced is None else ()
    return ReasoningLimit(tokens, tags.opens, tags.closes, form.thinks, list(ends))
