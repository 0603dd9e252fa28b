"""A model's shape, read from the config.json of its folder.

Whatever changes the arithmetic is either read or refused: a field that were passed over would give a model that
answers, and wrongly.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphpod_runtime.layers.rope import Linear, Llama3, Stretch, Yarn
from graphpod_runtime.models.base import Activation, ModelInvalid, ModelShape
from graphpod_runtime.models.registry import ARCHITECTURES, Architecture

Json = dict[str, Any]

REFUSED = ("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention")
"""Fields that change the arithmetic and are not built; a true value is refused."""

FULL, SLIDING = "full_attention", "sliding_attention"
"""What `layer_types` may name."""


def read_shape(folder: Path) -> ModelShape:
    """The model's shape from `folder`/config.json. ModelInvalid when it is missing, broken or not built."""
    path = folder / "config.json"
    whole = _read(path)
    if whole is None:
        raise ModelInvalid(f"{folder}: no config.json; point the model at a Hugging Face style folder")
    name = (whole.get("architectures") or ["?"])[0]
    if name not in ARCHITECTURES:
        raise ModelInvalid(f"{path}: architecture {name!r} is unknown; this engine runs {', '.join(ARCHITECTURES)}")
    row = ARCHITECTURES[name]
    try:
        config = dict(row.defaults) | (_given(whole["text_config"]) if row.text_part else whole)
        return _Reader(name, row, config).shape(_eos_ids(folder, whole, config))
    except _NotBuilt as error:
        raise ModelInvalid(f"{path}: {error}") from error
    except KeyError as error:
        raise ModelInvalid(f"{path}: field {error} is missing") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelInvalid(f"{path}: a field has no usable value ({error})") from error


class _NotBuilt(Exception):
    """Names the field, its value, and what is built instead."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """`config` of `architecture`, with defaults in and nulls out."""

    name: str
    row: Architecture
    config: Json

    def shape(self, eos_ids: tuple[int, ...]) -> ModelShape:
        row, config = self.row, self.config
        for field in REFUSED:
            if config.get(field):
                raise _NotBuilt(f"{field}={json.dumps(config[field])} is not built")
        self._check_weights()
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        windows = self._windows()
        rope = self._rope(FULL)
        theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
        stretch, positions = self._stretch(rope, int(config["max_position_embeddings"]))
        biased = bool(config.get("attention_bias")) and not row.qkv_bias
        return ModelShape(
            architecture=self.name,
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            vocab=int(config["vocab_size"]),
            max_position=positions,
            norm_eps=float(config["rms_norm_eps"]),
            rope_theta=theta,
            tied=bool(config.get("tie_word_embeddings", False)),
            eos_ids=eos_ids,
            qkv_bias=biased or row.qkv_bias,
            qk_norm=row.qk_norm,
            out_bias=biased,
            mlp_bias=bool(config.get("mlp_bias")),
            activation=self._activation(),
            stretch=stretch,
            windows=windows if any(windows) else (),
            local_rope_theta=self._local_theta() if row.gemma else None,
            attention_scale=float(config["query_pre_attn_scalar"]) ** -0.5 if row.gemma else None,
            embedding_scale=hidden**0.5 if row.gemma else 1.0,
            norm_results=row.gemma,
            norm_plus_one=row.gemma,
        )

    def _check_weights(self) -> None:
        """Weights must be plain numbers. A scheme for the KV cache alone leaves them so."""
        scheme = self.config.get("quantization_config") or {}
        if scheme and (scheme.get("config_groups") or not scheme.get("kv_cache_scheme")):
            method = scheme.get("quant_method")
            raise _NotBuilt(f"quantization_config of {method!r} is not built; take the model's 16-bit weights")

    def _activation(self) -> Activation:
        field, default = "hidden_act", Activation.Silu
        if self.row.gemma:
            field, default = "hidden_activation", Activation.GeluTanh
        name = self.config.get(field, default.value)
        # One function per family: silu in a Gemma would be a file of another model.
        if name != default.value:
            raise _NotBuilt(f"{field} {name!r} is not built; only {default.value!r} is")
        return default

    def _windows(self) -> tuple[int | None, ...]:
        config, layers = self.config, range(int(self.config["num_hidden_layers"]))
        if not self.row.gemma and not config.get("use_sliding_window"):
            return ()
        if self.row.gemma:
            pattern = int(config["sliding_window_pattern"])
            kinds = [SLIDING if (layer + 1) % pattern else FULL for layer in layers]
        else:
            first = int(config["max_window_layers"])
            kinds = [SLIDING if layer >= first else FULL for layer in layers]
        kinds = config.get("layer_types") or kinds
        for kind in kinds:
            if kind not in (FULL, SLIDING):
                raise _NotBuilt(f"layer type {kind!r} is not built; only {FULL} and {SLIDING} are")
        if len(kinds) != len(layers):
            raise ValueError(f"{len(kinds)} layer_types for {len(layers)} layers")
        window = int(config["sliding_window"])
        return tuple(window if kind == SLIDING else None for kind in kinds)

    def _rope(self, kind: str) -> Json:
        """The rotary parameters of layers of `kind`: by layer type, for all layers, or under their older name."""
        given: Json = self.config.get("rope_parameters") or {}
        if FULL in given or SLIDING in given:
            given = given.get(kind) or {}
        return given if kind == SLIDING else given | (self.config.get("rope_scaling") or {})

    def _local_theta(self) -> float:
        rope = self._rope(SLIDING) if SLIDING in (self.config.get("rope_parameters") or {}) else {}
        if _kind(rope) != "default":
            raise _NotBuilt(f"rope type {_kind(rope)!r} of {SLIDING} is not built; only default is")
        return float(rope.get("rope_theta") or self.config["rope_local_base_freq"])

    def _stretch(self, rope: Json, positions: int) -> tuple[Stretch | None, int]:
        """How positions are stretched, and how many there are then."""
        kind = _kind(rope)
        if float(rope.get("partial_rotary_factor", self.config.get("partial_rotary_factor", 1.0))) != 1.0:
            raise _NotBuilt("partial_rotary_factor other than 1 is not built")
        if kind == "default":
            return None, positions
        original = int(rope.get("original_max_position_embeddings") or positions)
        if kind == "linear":
            # Gemma's positions are those after stretching.
            factor = float(rope["factor"])
            return Linear(factor), positions if self.row.gemma else int(positions * factor)
        if kind == "llama3":
            low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
            return Llama3(float(rope["factor"]), low, high, original), positions
        if kind == "yarn":
            factor = float(rope.get("factor") or positions / original)
            yarn = Yarn(
                factor=factor,
                original=original,
                amplitude=_amplitude(rope, factor),
                fast=float(rope.get("beta_fast") or 32),
                slow=float(rope.get("beta_slow") or 1),
                truncate=bool(rope.get("truncate", True)),
            )
            return yarn, max(positions, int(original * factor))
        raise _NotBuilt(f"rope type {kind!r} is not built; default, linear, llama3 and yarn are")


def _kind(rope: Json) -> str:
    return str(rope.get("rope_type") or rope.get("type") or "default")


def _amplitude(rope: Json, factor: float) -> float:
    """Of Yarn: given, or by the logarithm of the stretch."""
    if rope.get("attention_factor"):
        return float(rope["attention_factor"])

    def sharpness(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0

    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return sharpness(float(rope["mscale"])) / sharpness(float(rope["mscale_all_dim"]))
    return sharpness(1.0)


def _eos_ids(folder: Path, *configs: Json) -> tuple[int, ...]:
    """Of the first that names them: generation_config.json, then `configs`."""
    for config in (_read(folder / "generation_config.json") or {}, *configs):
        if (value := config.get("eos_token_id")) is not None:
            return tuple(map(int, value)) if isinstance(value, list) else (int(value),)
    return ()


def _read(path: Path) -> Json | None:
    """The object in the file, without its nulls; None where there is no file."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ModelInvalid(f"{path}: not JSON ({error}); copy the model again") from error
    if not isinstance(content, dict):
        raise ModelInvalid(f"{path}: expected an object; copy the model again")
    return _given(content)


def _given(content: Json) -> Json:
    """What is not null: a null field says as much as none."""
    return {key: value for key, value in content.items() if value is not None}
