"""What a model's config.json declares, as the engine reads it: whatever changes the arithmetic is read or refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_policy.model.architectures import ARCHITECTURES, FULL_LAYERS, Architecture, Windows
from graphpod_policy.model.depth import depth_of
from graphpod_policy.model.families import Family, families, transformers_version
from graphpod_policy.model.fp8_scheme import Fp8Scheme, SchemeNotBuilt, scheme_of
from graphpod_policy.model.latent import Latent, latent_of
from graphpod_policy.model.mixture import COUNTS, Mixture, mixture_of
from graphpod_policy.model.shown import cut, shown
from graphpod_policy.model.weight_form import form_of

Json = Mapping[str, Any]

QUANTIZATION = "quantization_config"
"""The field that says how weights are held."""

REFUSED = ("use_bidirectional_attention",)
CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
"""Fields that change the arithmetic and are not built; a true value is refused. Caps are built for some rows."""

SCALE = "attention_multiplier"
"""The field of what Granite and families like it multiply query · key by."""
FULL, SLIDING = "full_attention", "sliding_attention"
"""What `layer_types` may name."""

STRETCHES = ("default", "dynamic", "linear", "llama3", "longrope", "yarn")
"""Rope types that are built; those that depend on the longest sequence of a pass, up to the positions of pretraining.
"""
ASKED = (Windows.Asked, Windows.AskedEvery, Windows.AskedOther)
"""Where `use_sliding_window` says whether there are windows."""
WHERE_GIVEN = ("sliding_window", "num_key_value_heads", "q_lora_rank", "eos_token_id", *CAPS)
"""Fields whose null is no missing field: there is none of it, and each head has its own keys and values."""


@dataclass(frozen=True, slots=True)
class ConfigJson:
    """A parsed config.json: nulls out, the defaults of a known architecture in, of a model that sees images the text
    part. `row` is None for an architecture that the engine does not know.

    Its methods raise KeyError, TypeError, ValueError or AttributeError where a field is missing or has no usable
    value.
    """

    architecture: str
    row: Architecture | None
    fields: Json
    family: Family | None = None
    """Of transformers, where the engine has no `row` for it."""
    code: bool = False
    """Whether the model's folder has code of its own."""

    @classmethod
    def of(cls, whole: Json) -> "ConfigJson":
        """What `whole` declares."""
        family = families().get(str(whole.get("model_type", "")))
        named = whole.get("architectures") or [family.architecture if family else whole.get("model_type", "")]
        name = str(named[0])
        row = ARCHITECTURES.get(name)
        code = bool(whole.get("auto_map"))
        if row is None:
            fields = given(whole.get("text_config") or whole)
            if family is not None and name not in (family.architecture, family.model_type):
                family = None
            if family is not None:
                fields = given(whole[family.text] if whole.get(family.text) else whole)
                if whole.get(QUANTIZATION):
                    fields[QUANTIZATION] = whole[QUANTIZATION]
            return cls(name, None, fields, family, code)
        text = whole["text_config"] if row.text_part else whole
        stated = given(text)
        # The number of experts has several names: where one is given, a default of another name does not count.
        counted = any(name in stated for name in COUNTS)
        fields = {name: value for name, value in row.defaults.items() if not (counted and name in COUNTS)} | stated
        for field in WHERE_GIVEN:
            if field in text and text[field] is None:
                fields.pop(field, None)
        if row.text_part and whole.get(QUANTIZATION):
            fields[QUANTIZATION] = whole[QUANTIZATION]  # it is the whole checkpoint's
        return cls(name, row, fields)

    def not_built(self) -> str | None:
        """What the engine of this version does not have: the field, its value, and what is built instead."""
        row, fields = self.row, self.fields
        if row is None:
            return self._family_not_built()
        for field in REFUSED if row.caps else (*REFUSED, *CAPS):
            if fields.get(field):
                return f"{field}={json.dumps(fields[field])} is not built"
        try:
            scheme = self.scheme()
        except SchemeNotBuilt as error:
            return str(error)
        if scheme and (mixed := scheme.mixed(depth_of(fields))):
            return f"{QUANTIZATION} that quantizes a part of what is one matrix here is not built ({mixed})"
        if scheme and not scheme.online and (row.own_order or self._rotary_part() != 1):
            return f"{QUANTIZATION} is not built for {self.architecture}, whose matrices are stored in another order"
        if scheme and row.mixture:
            return f"{QUANTIZATION} is not built for the experts of {self.architecture}; use the model's plain weights"
        for field, built in row.only.items():
            if (found := fields.get(field, built[0])) not in built:
                return (
                    f"{field}={cut(json.dumps(found))} is not built for {self.architecture}; only {_listed(built)} is"
                )
        field, built = row.activation
        # What a family has: silu in a Gemma would be a file of another model.
        if (activation := fields.get(field, built[0])) not in built:
            return f"{field} {shown(activation)} is not built; only {built[0]!r} is"
        heads, kv_heads = (int(fields.get(name) or 0) for name in ("num_attention_heads", "num_key_value_heads"))
        if kv_heads and heads % kv_heads:
            return f"num_key_value_heads {kv_heads} does not divide num_attention_heads {heads}"
        if row.multipliers and (unusable := _scale_not_built(fields[SCALE])):
            return unusable
        if self._windows_unasked():
            return f"layer_types with {SLIDING} is not built where use_sliding_window is not true"
        for kind in self._layer_types():
            if kind not in (FULL, SLIDING):
                return f"layer type {shown(kind)} is not built; only {FULL} and {SLIDING} are"
        return self._rope_not_built(row)

    def _family_not_built(self) -> str | None:
        """What of a model that transformers is to compute cannot be had."""
        family = self.family
        if family is None:
            return (
                f"architecture {shown(self.architecture)} is unknown; this engine runs {', '.join(ARCHITECTURES)}, and "
                f"causal models of transformers {transformers_version()} by their model_type"
            )
        if self.code:
            return (
                f"auto_map names code in the model's folder, which is never run; if {family.architecture} of "
                f"transformers {transformers_version()} is the same model, remove auto_map from config.json"
            )
        if family.refused:
            return f"architecture {shown(self.architecture)} is not built ({family.refused}): {family.because}"
        if isinstance(scale := self.fields.get(SCALE), int | float) and (unusable := _scale_not_built(scale)):
            return unusable
        if found := self.fields.get(QUANTIZATION):
            what = f"{QUANTIZATION} is not built for {self.architecture}, which runs by transformers"
            return f"{what} (the weights are {form_of(found)}); take the model's 16-bit weights"
        return None

    def scheme(self) -> Fp8Scheme | None:
        """How matrices are held in FP8; None: as plain numbers. SchemeNotBuilt for a way that is not built."""
        return scheme_of(self.fields.get(QUANTIZATION))

    def mixture(self) -> Mixture | None:
        """The experts of the model; None: it is dense, or of an architecture that the engine does not know."""
        return mixture_of(None if self.row is None else self.row.mixture, self.fields)

    def latent(self) -> Latent | None:
        """The widths of latent attention; None: heads have keys and values of their own."""
        return latent_of(self.fields) if self.row is not None and self.row.latent else None

    def windows(self) -> tuple[int | None, ...]:
        """Of each layer: how many of the last tokens a token attends to, None for all; () for a model without."""
        if not (kinds := self._layer_types()):
            return ()
        if len(kinds) != (layers := depth_of(self.fields)):
            raise ValueError(f"{len(kinds)} layer_types for {layers} layers")
        window = int(self.fields["sliding_window"])
        windows = tuple(window if kind == SLIDING else None for kind in kinds)
        return windows if any(windows) else ()

    def rope(self, kind: str) -> Json:
        """The rotary parameters of layers of `kind`: by layer type, for all layers, or under their older name."""
        parameters: Json = self.fields.get("rope_parameters") or {}
        if FULL in parameters or SLIDING in parameters:
            parameters = parameters.get(kind) or {}
        return parameters if kind == SLIDING else {**parameters, **(self.fields.get("rope_scaling") or {})}

    def local_rope(self) -> Json:
        """The rotary parameters of windowed layers, where they have their own."""
        return self.rope(SLIDING) if SLIDING in (self.fields.get("rope_parameters") or {}) else {}

    def positions(self) -> int:
        """The most tokens of one sequence, stretched positions included."""
        rope, positions = self.rope(FULL), int(self.fields["max_position_embeddings"])
        kind = rope_type(rope)
        if kind == "linear":
            # Gemma's positions are those after stretching.
            return positions if self.row and self.row.gemma else int(positions * float(rope["factor"]))
        if kind == "longrope":
            return min(positions, self.original_positions(rope))
        if kind == "yarn":
            original = self.original_positions(rope)
            return max(positions, int(original * float(rope.get("factor") or positions / original)))
        return positions

    def original_positions(self, rope: Json) -> int:
        """The positions of pretraining."""
        named = (fields.get("original_max_position_embeddings") for fields in (rope, self.fields))
        return int(next(filter(None, named), None) or self.fields["max_position_embeddings"])

    def rotary_width(self, head_dim: int) -> int:
        """Elements of a head that are rotated."""
        return int(head_dim * self._rotary_part())

    def _rotary_part(self) -> float:
        named = self.fields.get("partial_rotary_factor", 1.0)
        return float(self.rope(FULL).get("partial_rotary_factor", named))

    def unrotated(self) -> tuple[int, ...]:
        """Layers without rotary positions."""
        layers, row = range(depth_of(self.fields)), self.row
        if row is None or not row.unrotated:
            return ()
        if row.unrotated == FULL_LAYERS:
            windows = self.windows() or (None,) * len(layers)
            return tuple(layer for layer in layers if windows[layer] is None)
        if (listed := self.fields.get(row.unrotated)) is not None:
            if len(listed) != len(layers):
                raise ValueError(f"{len(listed)} {row.unrotated} for {len(layers)} layers")
            return tuple(layer for layer in layers if not listed[layer])
        interval = int(self.fields["no_rope_layer_interval"])
        return tuple(layer for layer in layers if (layer + 1) % interval == 0)

    def _rope_not_built(self, row: Architecture) -> str | None:
        rope = self.rope(FULL)
        if not 0 < (part := self._rotary_part()) <= 1 or (part != 1 and not row.partial):
            return f"partial_rotary_factor={part:g} is not built for {self.architecture}"
        heads = int(self.fields["num_attention_heads"])
        head_dim = int(self.fields.get("head_dim", int(self.fields["hidden_size"]) // heads))
        width = self.rotary_width(head_dim)
        if not row.latent and (width % 2 or not width):
            return f"rotary positions of {width} elements of a head of {head_dim} are not built; an even number is"
        latent = self.latent()
        pairs = (latent.rotated if latent else width) // 2
        if rope_type(rope) == "longrope" and len(rope["short_factor"]) != pairs:
            return f"short_factor of {len(rope['short_factor'])} numbers is not built for {pairs} rotary pairs"
        if (kind := rope_type(rope)) not in STRETCHES:
            return f"rope type {shown(kind)} is not built; {', '.join(STRETCHES[:-1])} and {STRETCHES[-1]} are"
        if row.local_rope and (kind := rope_type(self.local_rope())) != "default":
            return f"rope type {shown(kind)} of {SLIDING} is not built; only default is"
        return None

    def _windows_unasked(self) -> bool:
        """Whether layers are named as windowed where no windows are asked for: transformers has no window for them."""
        kind, fields = self.row and self.row.windows, self.fields
        listed = kind in (Windows.Asked, Windows.AskedOther) and SLIDING in fields.get("layer_types", ())
        return listed and not fields.get("use_sliding_window")

    def _layer_types(self) -> list[str]:
        """Of each layer; empty where none is windowed."""
        fields, kind = self.fields, self.row and self.row.windows
        if kind is None or (kind in ASKED and not fields.get("use_sliding_window")):
            return []
        layers = range(depth_of(fields))
        if kind in (Windows.Every, Windows.AskedEvery):
            return [SLIDING for _ in layers] if fields.get("sliding_window") else []
        if fields.get("layer_types"):
            return list(fields["layer_types"])
        if kind is Windows.Pattern:
            pattern = int(fields["sliding_window_pattern"])
            return [SLIDING if (layer + 1) % pattern else FULL for layer in layers]
        if self.row is not None and self.row.unrotated:
            return [SLIDING if layer in self.unrotated() else FULL for layer in layers]
        first = int(fields["max_window_layers"])
        if kind is Windows.AskedOther:
            return [SLIDING if layer < first and not layer % 2 else FULL for layer in layers]
        return [SLIDING if layer >= first else FULL for layer in layers]


def rope_type(rope: Json) -> str:
    """How positions are stretched."""
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    # Phi-3's older names of one type, which has factors of its own for each pair.
    return "longrope" if kind == "su" or "short_factor" in rope else kind


def _listed(values: tuple[Any, ...]) -> str:
    return " or ".join(json.dumps(value) for value in values)


def _scale_not_built(scale: Any) -> str | None:
    """That a factor of scores is none that a model was trained with."""
    return f"{SCALE}={cut(json.dumps(scale))} is not built; a number above 0 is" if float(scale) <= 0 else None


def given(content: Json) -> dict[str, Any]:
    """What is not null: a null field says as much as none."""
    return {key: value for key, value in content.items() if value is not None}
