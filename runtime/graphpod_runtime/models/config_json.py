"""A model's shape, read from the config.json of its folder.

What is built stands once, in `graphpod_policy.model.config_json`: `graphpod explain` refuses what this refuses.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphpod_policy.model.architectures import Architecture
from graphpod_policy.model.config_json import CAPS, FULL, ConfigJson, Json, rope_type
from graphpod_policy.model.depth import depth_of
from graphpod_policy.model.fp8_scheme import ONLINE
from graphpod_policy.model.shown import shown
from graphpod_runtime.base.errors import ModelInvalid, ModelUnsupported
from graphpod_runtime.base.files.json_file import JsonFileInvalid, json_object
from graphpod_runtime.base.shapes import Activation, ModelShape, Stretch
from graphpod_runtime.models.rope.stretches import LinearStretch, Llama3Stretch, PairStretch, YarnStretch

MOST_TOKENS = 1 << 31
"""Of a vocabulary: a token has so many numbers in a tensor."""


def read_config(folder: Path) -> dict[str, Any]:
    """The parsed config.json of `folder`. ModelInvalid when it is missing or broken."""
    whole = _read(folder / "config.json")
    if whole is None:
        raise ModelInvalid(f"{folder}: no config.json; use the folder of a Hugging Face style model")
    return whole


def read_declared(folder: Path) -> ConfigJson:
    """What the config.json of `folder` declares. ModelInvalid when it is missing or broken."""
    try:
        return ConfigJson.of(read_config(folder))
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        raise ModelInvalid(f"{folder / 'config.json'}: a field has no usable value ({error})") from error


def read_shape(folder: Path, quantize: bool = False) -> ModelShape:
    """The model's shape from `folder`/config.json. ModelInvalid when it is missing or broken, ModelUnsupported when it
    is not built. `quantize`: plain matrices of layers become FP8.
    """
    return shape_of(folder, read_config(folder), quantize)


def shape_of(folder: Path, whole: Json, quantize: bool = False) -> ModelShape:
    """The same for the config.json `whole` of `folder`."""
    path = folder / "config.json"
    try:
        declared = ConfigJson.of(whole)
        missing = declared.not_built()
        if declared.row is None or missing is not None:
            raise ModelUnsupported(f"{path}: {missing}")
        shape = _Reader(declared, declared.row).shape(eos_ids(folder, whole, declared.fields))
        if quantize and shape.mixture is not None:
            raise ModelUnsupported(f"{path}: FP8 weights are not built for mixtures of experts")
        if quantize and shape.latent is not None:
            raise ModelUnsupported(f"{path}: FP8 weights are not built for latent attention")
        scheme = declared.scheme() or (ONLINE if quantize else None)
        return replace(shape, scheme=scheme)
    except KeyError as error:
        raise ModelInvalid(f"{path}: field {error} is missing") from error
    except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelInvalid(f"{path}: a field has no usable value ({error})") from error


@dataclass(frozen=True, slots=True)
class _Reader:
    """What a config.json declares, of an architecture that is built."""

    declared: ConfigJson
    row: Architecture

    def shape(self, eos_ids: tuple[int, ...]) -> ModelShape:
        row, declared, config = self.row, self.declared, self.declared.fields
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        rope = declared.rope(FULL)
        theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
        latent = declared.latent()
        head_dim = latent.cached if latent else int(config.get("head_dim") or hidden // heads)
        rotated, biases, windows = declared.rotary_width(head_dim), self._biases(), declared.windows()
        cap = config.get(CAPS[0])
        return ModelShape(
            architecture=declared.architecture,
            layers=depth_of(config),
            hidden=hidden,
            intermediate=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=1 if latent else int(config.get("num_key_value_heads") or heads),
            head_dim=head_dim,
            vocab=int(config["vocab_size"]),
            max_position=declared.positions(),
            norm_eps=float(config[row.eps]),
            rope_theta=theta,
            tied=bool(config.get("tie_word_embeddings", False)),
            eos_ids=tuple(one for one in eos_ids if one < int(config["vocab_size"])),
            qkv_bias="qkv" in biases,
            qk_norm=row.qk_norm if not row.qk_norm_field or config.get(row.qk_norm_field) else None,
            out_bias="out" in biases,
            mlp_bias="mlp" in biases,
            gated=row.gated,
            activation=self._activation(),
            parallel=row.parallel,
            rotated=rotated if rotated != head_dim else 0,
            interleaved=row.interleaved,
            unrotated=declared.unrotated(),
            fused=row.fused,
            stretch=self._stretch(rope),
            windows=windows,
            caps=(float(cap),) * depth_of(config) if cap else (),
            local_rope_theta=self._local_theta() if row.local_rope else None,
            attention_scale=self._scale() if latent is None else _sharpened(latent.query**-0.5, rope),
            latent=latent,
            embedding_scale=hidden**0.5
            if row.gemma
            else float(config["embedding_multiplier"] if row.multipliers else 1),
            norm_results=row.norm_results,
            norm=row.norm,
            norm_inputs=row.norm_inputs,
            residual_scale=float(config["residual_multiplier"]) if row.multipliers else 1.0,
            logit_scale=self._logit_scale(),
            mixture=declared.mixture(),
            clip=float(config[row.clip]) if row.clip and config.get(row.clip) else None,
            logit_cap=float(config[CAPS[1]]) if config.get(CAPS[1]) else None,
        )

    def _activation(self) -> Activation:
        field, built = self.row.activation
        name = self.declared.fields.get(field, built[0])
        # The older name of Gemma's: its authors meant the approximation.
        return Activation.GeluTanh if name == "gelu" else Activation(name)

    def _biases(self) -> set[str]:
        """The matrices that have biases."""
        fields = self.declared.fields
        return {
            part for field, parts in self.row.biases.items() if not field or fields.get(field) for part in parts.split()
        }

    def _scale(self) -> float | None:
        """Of query · key."""
        if not self.row.scale:
            return None
        given = float(self.declared.fields[self.row.scale])
        return given**-0.5 if self.row.gemma else given

    def _logit_scale(self) -> float:
        config = self.declared.fields
        if self.row.multipliers:
            return 1 / float(config["logits_scaling"])
        return float(config["logit_scale"]) if self.row.logit_scale else 1.0

    def _local_theta(self) -> float:
        return float(self.declared.local_rope().get("rope_theta") or self.declared.fields["rope_local_base_freq"])

    def _stretch(self, rope: Json) -> Stretch | None:
        """How positions are stretched."""
        original, positions = (
            self.declared.original_positions(rope),
            int(self.declared.fields["max_position_embeddings"]),
        )
        match rope_type(rope):
            case "linear":
                return LinearStretch(float(rope["factor"]))
            case "llama3":
                low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
                return Llama3Stretch(float(rope["factor"]), low, high, original)
            case "longrope":
                factor = float(rope.get("factor") or positions / original)
                amplitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
                factors = tuple(float(each) for each in rope["short_factor"])
                return PairStretch(factors, float(rope.get("attention_factor") or amplitude))
            case "yarn":
                factor = float(rope.get("factor") or positions / original)
                return YarnStretch(
                    factor=factor,
                    original=original,
                    amplitude=_amplitude(rope, factor),
                    fast=float(rope.get("beta_fast") or 32),
                    slow=float(rope.get("beta_slow") or 1),
                    truncate=bool(rope.get("truncate", True)),
                )
            case _:
                return None


def _amplitude(rope: Json, factor: float) -> float:
    """Of YarnStretch: given, or by the logarithm of the stretch."""
    if rope.get("attention_factor"):
        return float(rope["attention_factor"])
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return _sharpness(factor, float(rope["mscale"])) / _sharpness(factor, float(rope["mscale_all_dim"]))
    return _sharpness(factor, 1.0)


def _sharpness(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _sharpened(scale: float, rope: Json) -> float:
    """What latent attention multiplies query · key by, for one of `scale` without a stretch."""
    if rope_type(rope) == "default" or not rope.get("mscale_all_dim"):
        return scale
    return scale * _sharpness(float(rope["factor"]), float(rope["mscale_all_dim"])) ** 2


def eos_ids(folder: Path, *configs: Json) -> tuple[int, ...]:
    """Of the first that names them: generation_config.json, then `configs`. ModelInvalid for what are no tokens. Those
    beyond a vocabulary end nothing, and must not come to its logits.
    """
    for config in (_read(folder / "generation_config.json") or {}, *configs):
        if (value := config.get("eos_token_id")) is not None:
            ids = tuple(value) if isinstance(value, list) else (value,)
            if not all(type(one) is int and 0 <= one < MOST_TOKENS for one in ids):
                raise ModelInvalid(f"{folder}: eos_token_id {shown(value)} is no token, nor a list of tokens")
            return ids
    return ()


def _read(path: Path) -> dict[str, Any] | None:
    """The object in the file; None where there is no file."""
    try:
        return json_object(path)
    except JsonFileInvalid as error:
        raise ModelInvalid(str(error)) from error
