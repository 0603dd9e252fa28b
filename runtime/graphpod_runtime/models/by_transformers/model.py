"""A causal model of transformers as the engine runs it: a Model."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphpod_policy import ModelPath
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.base.shapes import HOST, KvScale, ModelShape
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.models.by_transformers import interface, weights
from graphpod_runtime.models.by_transformers.assembly import assembled, config_of, positions_of
from graphpod_runtime.models.by_transformers.attention_call import AttentionCall
from graphpod_runtime.models.by_transformers.layout import Layout
from graphpod_runtime.models.by_transformers.parts import Parts
from graphpod_runtime.models.by_transformers.proof import prove
from graphpod_runtime.models.by_transformers.rehearsal import Rehearsal, rehearsed
from graphpod_runtime.models.by_transformers.unsupported import FamilyUnsupported, Lack
from graphpod_runtime.models.config_json import eos_ids
from graphpod_runtime.models.model import Model


class TransformersBody(nn.Module):
    """From token ids to what the head takes: a Body whose `hidden` are tokens [tokens]."""

    def __init__(self, seen: Rehearsal, layout: Layout) -> None:
        super().__init__()
        self.decoder = seen.parts.decoder
        self._seen, self._layout = seen, layout
        for index, marker in enumerate(seen.masks.markers):
            self.register_buffer(f"mask_{index}", marker, persistent=False)

    def forward(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        layout = self._layout

        def attended(number: int, call: AttentionCall, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            rows = layout.queries(call, q), layout.keys(call, k), layout.keys(call, v)
            # A copy: a result lies in the place of the next one, which a layer may ask for before it has used this.
            return layout.result(call, attend(number, *rows)).clone()

        with interface.passing(self._seen.masks, attended):
            return self._seen.parts.hidden(hidden, positions)


class TransformersModel:
    """Is a Model."""

    def __init__(self, seen: Rehearsal, shape: ModelShape, layout: Layout) -> None:
        self.shape = shape
        self.kv_scales = (KvScale(),) * shape.layers
        self.unscaled_layers = tuple(range(shape.layers))
        self.sinks = tuple(map(layout.sinks, seen.calls)) if shape.sinks else ()
        self.body = TransformersBody(seen, layout)
        self._parts = seen.parts
        self._module = nn.ModuleDict({"whole": seen.parts.whole, "body": self.body})
        for layer, sink in enumerate(self.sinks):
            if sink is not None:
                self.body.register_buffer(f"sinks_{layer}", sink, persistent=False)

    def embed(self, tokens: Tensor) -> Tensor:
        return tokens

    def embedded(self, dtype: torch.dtype) -> tuple[tuple[int, ...], torch.dtype]:
        return (), torch.int64

    def head(self, hidden: Tensor) -> Tensor:
        return self._parts.logits(hidden)

    def final(self, hidden: Tensor) -> Tensor:
        return hidden

    def logits(self, final: Tensor) -> Tensor:
        return self._parts.logits(final)

    def compile_halves(self, cache: CompileCache | None) -> int:
        """None: layers are not in halves."""
        return 0

    def module(self) -> nn.Module:
        return self._module


def transformers_model(
    folder: Path,
    dtype: torch.dtype,
    max_model_len: int,
    device: torch.device = HOST,
    read: OnProgress = ignore_progress,
    *,
    random: bool = False,
) -> TransformersModel:
    """The model in `folder`, or one of its config.json with random weights, rehearsed and proved on `device`.
    ModelInvalid for files that are broken, FamilyUnsupported for what this engine cannot compute."""
    config = config_of(folder)
    whole = assembled(config, dtype)
    if random:
        weights.draw(whole, dtype, device, read)
    else:
        weights.fill(whole, folder, dtype, device, read)
    parts, text = Parts(whole), config.get_text_config(decoder=True)
    positions = positions_of(config) - parts.positions.first
    context = min(positions, max_model_len)
    try:
        seen = rehearsed(parts, int(text.vocab_size), context, device)
        layout = Layout.of(seen.calls)
        prove(seen, layout, context, device)
    except (FamilyUnsupported, torch.OutOfMemoryError):
        raise
    except Exception as error:
        # Whatever a family's code raises: it was written for other arguments.
        message = f"{type(whole).__name__} fails on a line of rows: {type(error).__name__}: {str(error)[:200]}"
        raise FamilyUnsupported(Lack.Code, message) from error
    shape = _shape(folder, config, text, seen, layout, positions)
    return TransformersModel(seen, shape, layout)


def refill(folder: Path, model: Model, dtype: torch.dtype, read: OnProgress) -> None:
    """The weights in `folder` into the parameters of `model`, by way of the host: transformers makes its own tensors.
    ModelInvalid as for `transformers_model`."""
    assert isinstance(model, TransformersModel)
    fresh = assembled(config_of(folder), dtype)
    weights.fill(fresh, folder, dtype, HOST, read)
    places = dict(model.module()["whole"].named_parameters())
    for name, parameter in fresh.named_parameters():
        places[name].data.copy_(parameter.data)


def _shape(folder: Path, config: Any, text: Any, seen: Rehearsal, layout: Layout, positions: int) -> ModelShape:
    calls = seen.calls
    windows, caps = tuple(call.window for call in calls), tuple(call.cap for call in calls)
    wide = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    return ModelShape(
        architecture=type(seen.parts.whole).__name__,
        layers=len(calls),
        hidden=int(text.hidden_size),
        intermediate=max(wide) if isinstance(wide, (list, tuple)) else int(wide),
        heads=layout.heads,
        kv_heads=layout.kv_heads,
        head_dim=layout.width,
        vocab=seen.vocab,
        max_position=positions,
        norm_eps=0.0,
        rope_theta=0.0,
        tied=bool(getattr(text, "tie_word_embeddings", False)),
        eos_ids=tuple(one for one in eos_ids(folder, config.to_dict(), text.to_dict()) if one < seen.vocab),
        windows=windows if any(windows) else (),
        caps=caps if any(caps) else (),
        sinks=any(call.sinks is not None for call in calls),
        attention_scale=layout.scale,
        path=ModelPath.Transformers,
        uncapturable=seen.uncapturable,
    )
