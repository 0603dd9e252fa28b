"""Fields that are known and not built, and how the API refuses and ignores fields."""

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from graphpod_runtime.front.requests.errors import ApiError, invalid, shown

NOT_BUILT: dict[str, tuple[Any, ...]] = {
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "suffix": ("",),
    "typical_p": (1,),
    "stop_regex": ("", []),
    "no_stop_trim": (False,),
    "logits_processors": ([],),
    "custom_logit_processor": (),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning": (),
    "thinking": (),
    "verbosity": (),
    "web_search_options": (),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "chat_template": (),
    "documents": ([],),
    "mm_processor_kwargs": ({},),
    "prompt_embeds": (),
    "lora_path": (),
    "kv_transfer_params": (),
    "return_hidden_states": (False,),
}
"""Known fields of both endpoints that are not built, with the values that mean "not used" (null always does)."""

CHAT_NOT_BUILT = NOT_BUILT | {"best_of": (1,)}
TEXT_NOT_BUILT = NOT_BUILT | {
    "max_completion_tokens": (),
    "top_logprobs": (0,),
    "messages": (),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "reasoning_effort": (),
    "include_reasoning": (True,),
    "thinking_token_budget": (-1,),
    "thinking_budget": (-1,),
}
"""Those of each endpoint: a field that the other one has would change the answer, too."""

MESSAGE_NOT_BUILT: dict[str, tuple[Any, ...]] = {
    "audio": ({},),
    "function_call": (),
    "tools": ([],),
    "prefix": (False,),
}
"""Fields of a message that a prompt would have to hold."""

NOT_BESIDES_CHATS: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "prompt_logprobs": (),
    "logprob_token_ids": ([],),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "response_format": (),
}
"""Fields of generation that only chats and completions have, with the values that mean "not used"."""

CHATS_ALONE: dict[str, tuple[Any, ...]] = {
    "logprobs": (False,),
    "echo": (False,),
    "add_special_tokens": (False,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "include_reasoning": (True,),
}
"""Fields of a chat that messages and responses do not have, with the values that mean "not used"."""

INSTEAD = {"functions": "tools", "function_call": "tool_choice"}
"""Older names of fields that are built."""

NO_WORD = re.compile(r"[^\w\[\].-]", re.ASCII)
MAX_IGNORED = 16
"""Names in the answer's header; more are counted."""
Ignored = dict[str, None]
"""Names of fields, in order."""


def refuse_unbuilt(fields: Mapping[str, Any] | None, table: Mapping[str, tuple[Any, ...]], at: str = "") -> list[str]:
    """ApiError 400 naming the first field of an object that stands in `table` with a value that would change the
    answer. Returns the names of the fields that `table` does not have, those that are null left out. `at` is the
    object's path.
    """
    unknown = []
    for name, value in (fields or {}).items():
        if value is None:
            continue
        if name not in table:
            unknown.append(name)
        elif _is_no_number(value, table[name]):
            raise invalid(f"{at}{name} must be a number, not {_json(value)}", param=f"{at}{name}", code="invalid_type")
        elif not _is_neutral(value, table[name]):
            raise _not_built(at, name, value, table[name])
    return unknown


def take_unknown(
    model: BaseModel, table: Mapping[str, tuple[Any, ...]], at: str, within: str, ignored: Ignored
) -> None:
    """Adds the unknown fields of one object to `ignored` and forgets them. `at` is the object's path in errors,
    `within` the same without indexes. ApiError 400 as `refuse_unbuilt`.
    """
    extra = model.model_extra
    if not extra:
        return
    for name in refuse_unbuilt(extra, table, at):
        ignored[within + shown(name)] = None
    extra.clear()


def refuse_absent(request: BaseModel, table: Mapping[str, tuple[Any, ...]], instead: Mapping[str, str]) -> None:
    """ApiError 400 naming the first field of `table` that the request uses and its endpoint does not have; `instead` is
    the endpoint's own name of some."""
    for name, neutral in table.items():
        if (value := getattr(request, name, None)) is not None and value not in neutral:
            send = f"; send {instead[name]}" if name in instead else ""
            message = f"{name} is not a field of this endpoint{send}"
            raise invalid(message, param=name, code="unsupported_parameter")


def header_of(ignored: Ignored) -> str:
    """The value of `x-ignored-fields`: names, with question marks for what a header cannot hold, and a count of those
    beyond MAX_IGNORED. Empty where nothing was ignored.
    """
    names = [NO_WORD.sub("?", name) for name in list(ignored)[:MAX_IGNORED]]
    more = len(ignored) - len(names)
    return ", ".join([*names, f"+{more}"] if more else names)


def _is_neutral(value: Any, neutral: tuple[Any, ...]) -> bool:
    """0 and False are two things here: `logprobs: 0` asks for log-probabilities, `logprobs: false` does not."""
    return any(value == word and isinstance(value, bool) == isinstance(word, bool) for word in neutral)


def _is_no_number(value: Any, neutral: tuple[Any, ...]) -> bool:
    """Whether a string or a truth value stands where only numbers do."""
    numbers = [word for word in neutral if isinstance(word, int | float) and not isinstance(word, bool)]
    return isinstance(value, str | bool) and 0 < len(numbers) == len(neutral)


def _not_built(at: str, name: str, value: Any, neutral: tuple[Any, ...]) -> ApiError:
    """400: the field would change the answer. Lists and objects are not written out."""
    if name in INSTEAD:
        message = f"{at}{name} is not built; send {INSTEAD[name]} instead"
    else:
        what = f"{at}{name}" if isinstance(value, list | dict) else f"{at}{name} {_json(value)}"
        only = " or ".join(json.dumps(word) for word in neutral if word not in ("", [], {}))
        message = f"{what} is not built; " + (f"only {only} is" if only else "leave the field out")
    return invalid(message, param=f"{at}{name}", code="unsupported_parameter")


def _json(value: Any) -> str:
    """A string, number or truth value as the client wrote it; long ones cut."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return "(a huge number)"
    return json.dumps(shown(value) if isinstance(value, str) else value, ensure_ascii=False)
