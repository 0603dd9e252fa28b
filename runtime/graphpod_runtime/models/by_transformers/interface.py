"""Our attention as one of transformers' own, by its attention and mask interfaces: modules call it by name."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import masking_utils
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel

from graphpod_runtime.models.by_transformers.attention_call import AttentionCall
from graphpod_runtime.models.by_transformers.masks import Masks
from graphpod_runtime.models.by_transformers.own_attention import OwnAttention

NAME = "graphpod"
"""Of our attention among theirs."""

OnCall = Callable[[int, AttentionCall, Tensor, Tensor, Tensor], Tensor]
"""(number of the call in its pass, what it is, q, k, v of [1, heads, tokens, width]) -> [1, tokens, heads, width]"""


class _Current(threading.local):
    """The pass that this thread runs."""

    passing: "_Pass | None" = None


_current = _Current()


class _Pass:
    """One pass of a model through the interface."""

    def __init__(self, masks: Masks, on_call: OnCall) -> None:
        self._masks, self._on_call = masks, on_call
        self.calls = self.masks = 0

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, given: dict[str, Any]) -> Tensor:
        window = self._masks.window(type(module).__name__, mask)
        call = AttentionCall.of(module, q, k, v, window, given)
        self.calls += 1
        return self._on_call(self.calls - 1, call, q, k, v)

    def mask(self, function: Callable[..., Tensor], rows: tuple[int, int]) -> Tensor:
        self.masks += 1
        # As large as a mask: some layers look.
        return self._masks.marker(self.masks - 1, function).expand(1, 1, *rows)


@contextmanager
def reading_own(module: nn.Module) -> Iterator[None]:
    """What `module` writes out as attention is a call of the pass that runs."""
    running = _current.passing
    assert running is not None, "a module was called outside of a pass"

    def attended(q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float) -> Tensor:
        return running.attend(module, q, k, v, mask, {"scaling": scale})

    with OwnAttention(attended):
        yield


@contextmanager
def passing(masks: Masks, on_call: OnCall) -> Iterator[_Pass]:
    """Modules that run in here call attention by `on_call`."""
    before, _current.passing = _current.passing, _Pass(masks, on_call)
    try:
        yield _current.passing
    finally:
        _current.passing = before


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **given: Any
) -> tuple[Tensor, None]:
    assert _current.passing is not None, "a module was called outside of a pass"
    return _current.passing.attend(module, query, key, value, attention_mask, given), None


def _mask(*, mask_function: Callable[..., Tensor], q_length: int, kv_length: int, **_: Any) -> Tensor:
    assert _current.passing is not None, "a module was called outside of a pass"
    return _current.passing.mask(mask_function, (q_length, kv_length))


def attend_by(whole: Any, name: str) -> None:
    """Modules of `whole`, whose attention is its own, make masks for attention of this name. transformers' own setter
    leaves such models as they are."""
    for module in whole.modules():
        if isinstance(module, PreTrainedModel):
            module.config._attn_implementation = name


def register() -> None:
    """Makes our attention known to transformers; again: nothing."""
    if NAME in ALL_ATTENTION_FUNCTIONS.valid_keys():
        return
    ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, _mask)
    packed = masking_utils.find_packed_sequence_indices

    def unpacked(position_ids: Tensor) -> Tensor | None:
        # It guesses from jumps of the positions where sequences begin, and reads them on the host. Ours are known.
        return packed(position_ids) if _current.passing is None else None

    masking_utils.find_packed_sequence_indices = unpacked
