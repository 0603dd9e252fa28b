"""The two parts of one of transformers' causal models: its decoder, and the head that makes logits of what that gives.

A model's forward calls its decoder and goes on to the logits, with whatever it scales and caps. So the head is that
forward, with a decoder that returns given states; nothing of a family is written here.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from graphpod_runtime.models.by_transformers import interface
from graphpod_runtime.models.by_transformers.attention_call import AttentionCall
from graphpod_runtime.models.by_transformers.experts import NAME as EXPERTS
from graphpod_runtime.models.by_transformers.masks import Masks
from graphpod_runtime.models.by_transformers.positions import Positions
from graphpod_runtime.models.by_transformers.rotary import Rotary
from graphpod_runtime.models.by_transformers.unsupported import FamilyUnsupported, Lack


class Parts:
    """Those of `whole`, a PreTrainedModel."""

    def __init__(self, whole: Any) -> None:
        self.whole: nn.Module = whole
        self._rotary = Rotary(whole)
        self.decoder, called = _decoder_of(whole)
        self._own = not called
        """Whether layers call no attention: they may have written it out."""
        self._result: type[Any] | None = None
        """What the decoder returns."""
        self.positions = Positions(self.decoder)
        _alone(whole, Lack.Code, lambda: self.positions.learn(self.decoder))

    def hidden(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """[rows] and [rows] -> what the head takes, [rows, hidden]."""
        own = interface.reading_own(self.decoder) if self._own else nullcontext()
        with self.positions.arguments(tokens, positions) as arguments, own:
            result = self.decoder(input_ids=tokens[None], **arguments)
        self._result = type(result)
        if not isinstance(getattr(result, "last_hidden_state", None), Tensor):
            raise FamilyUnsupported(Lack.Head, f"{type(self.decoder).__name__} returns no last_hidden_state")
        states: Tensor = result.last_hidden_state
        return states[0]

    @contextmanager
    def as_transformers_has_it(self) -> Iterator[None]:
        """The model computes attention, experts and rotary positions by transformers' own code."""
        whole: Any = self.whole
        attend_by = interface.attend_by if self._own else type(whole).set_attn_implementation
        attend_by(whole, "eager")
        whole.set_experts_implementation("eager")
        try:
            with self._rotary.growing():
                yield
        finally:
            attend_by(whole, interface.NAME)
            whole.set_experts_implementation(EXPERTS)

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] -> [rows, vocabulary]"""
        with self._decoder_returns(hidden[None]) as called:
            tokens = torch.zeros((1, hidden.shape[0]), dtype=torch.int64, device=hidden.device)
            logits: Tensor = self.whole(input_ids=tokens, use_cache=False).logits
        if not called:
            raise FamilyUnsupported(Lack.Head, f"{type(self.whole).__name__} does not call its decoder for its head")
        return logits[0]

    @contextmanager
    def _decoder_returns(self, hidden: Tensor) -> Iterator[list[bool]]:
        """Its list is not empty once the decoder was called."""
        own, called, result = self.decoder.__dict__.get("forward"), list[bool](), self._result
        assert result is not None, "the decoder has run before"

        def forward(*_: Any, **__: Any) -> Any:
            called.append(True)
            return result(last_hidden_state=hidden)

        self.decoder.forward = forward
        try:
            yield called
        finally:
            if own is None:
                del self.decoder.forward
            else:
                self.decoder.forward = own


def _decoder_of(whole: Any) -> tuple[nn.Module, int]:
    """The outermost part of `whole` that takes token ids when a token passes, and how often attention is called then.
    FamilyUnsupported where none does."""
    called: list[nn.Module] = []
    parts = [
        part
        for part in whole.modules()
        if part is not whole
        and isinstance(part, PreTrainedModel)
        and "input_ids" in inspect.signature(part.forward).parameters
    ]
    handles = [part.register_forward_pre_hook(lambda module, _: called.append(module)) for part in parts]
    try:
        tokens = torch.zeros((1, 1), dtype=torch.int64, device=whole.device)
        calls = _alone(whole, Lack.Config, lambda: whole(input_ids=tokens, use_cache=False))
    finally:
        for handle in handles:
            handle.remove()
    if not called:
        raise FamilyUnsupported(Lack.Head, f"{type(whole).__name__} has no decoder apart from its head")
    return called[0], calls


def _alone(whole: Any, lack: Lack, run: Callable[[], object]) -> int:
    """A call of a part of `whole` apart from any text, and how often it calls attention. FamilyUnsupported, of `lack`,
    where it fails."""
    try:
        with interface.passing(Masks(whole.device, positions=2), own_rows) as passed, torch.no_grad():
            run()
        return passed.calls
    except FamilyUnsupported:
        raise
    except Exception as error:
        raise FamilyUnsupported(
            lack, f"{type(whole).__name__} of transformers itself fails: {type(error).__name__}: {error}"
        ) from error


def own_rows(number: int, call: AttentionCall, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of a rehearsal: each row attends to itself alone, and all of q, k and v matter."""
    groups = (1, call.kv_heads, call.group, q.shape[2])
    weight = ((q.reshape(*groups, -1) * k[:, :, None]).sum(-1, keepdim=True) * call.scale).sigmoid()
    return (weight * v[:, :, None]).flatten(1, 2).transpose(1, 2).contiguous()
