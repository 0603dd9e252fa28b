"""Numbers of a native model's arithmetic next to its sizes: factors, caps, and what its positions turn by.

Engine and `graphpod explain` read them here, so that both refuse a value that is of no use.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from graphpod_policy.model.config_json import CAPS, FULL, ConfigJson, Json, rope_type


class Numbers(NamedTuple):
    """Of all layers."""

    norm_eps: float
    rope_theta: float
    local_rope_theta: float | None
    """Of windowed layers, where they have their own."""
    stretch: tuple[str, Mapping[str, Any]] | None
    """How positions are stretched: the rope type, and what it is computed from. None: they are not."""
    attention_scale: float | None
    """Of query · key; None: by a head's width."""
    embedding_scale: float
    residual_scale: float
    logit_scale: float
    cap: float | None
    """Of scores."""
    logit_cap: float | None
    clip: float | None
    """Of elements of queries, keys and values."""

    @classmethod
    def of(cls, declared: ConfigJson) -> "Numbers":
        """What `declared`, of an architecture that the engine knows, says. KeyError, TypeError, ValueError,
        AttributeError or ArithmeticError where a field is missing or has no usable value."""
        row, config = declared.row, declared.fields
        assert row is not None, "the engine does not know this architecture"
        rope, latent = declared.rope(FULL), declared.latent()
        embedding = int(config["hidden_size"]) ** 0.5 if row.gemma else 1.0
        return cls(
            norm_eps=float(config[row.eps]),
            rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
            local_rope_theta=_local_theta(declared) if row.local_rope else None,
            stretch=_stretch(declared, rope),
            attention_scale=_scale(declared) if latent is None else _sharpened(latent.query**-0.5, rope),
            embedding_scale=float(config["embedding_multiplier"]) if row.multipliers else embedding,
            residual_scale=float(config["residual_multiplier"]) if row.multipliers else 1.0,
            logit_scale=_logit_scale(declared),
            cap=_unless_zero(config.get(CAPS[0])),
            logit_cap=_unless_zero(config.get(CAPS[1])),
            clip=_unless_zero(config.get(row.clip)) if row.clip else None,
        )


def _unless_zero(value: Any) -> float | None:
    return float(value) if value else None


def _scale(declared: ConfigJson) -> float | None:
    row = declared.row
    if row is None or not row.scale:
        return None
    given = float(declared.fields[row.scale])
    return given**-0.5 if row.gemma else given


def _logit_scale(declared: ConfigJson) -> float:
    row, config = declared.row, declared.fields
    if row is not None and row.multipliers:
        return 1 / float(config["logits_scaling"])
    return float(config["logit_scale"]) if row is not None and row.logit_scale else 1.0


def _local_theta(declared: ConfigJson) -> float:
    return float(declared.local_rope().get("rope_theta") or declared.fields["rope_local_base_freq"])


def _stretch(declared: ConfigJson, rope: Json) -> tuple[str, Mapping[str, Any]] | None:
    original, positions = declared.original_positions(rope), int(declared.fields["max_position_embeddings"])
    match kind := rope_type(rope):
        case "linear":
            return kind, {"factor": float(rope["factor"])}
        case "llama3":
            low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
            return kind, {"factor": float(rope["factor"]), "low": low, "high": high, "original": original}
        case "longrope":
            factor = float(rope.get("factor") or positions / original)
            amplitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
            factors = tuple(float(each) for each in rope["short_factor"])
            return kind, {"factors": factors, "amplitude": float(rope.get("attention_factor") or amplitude)}
        case "yarn":
            factor = float(rope.get("factor") or positions / original)
            return kind, {
                "factor": factor,
                "original": original,
                "amplitude": _amplitude(rope, factor),
                "fast": float(rope.get("beta_fast") or 32),
                "slow": float(rope.get("beta_slow") or 1),
                "truncate": bool(rope.get("truncate", True)),
            }
        case _:
            return None


def _amplitude(rope: Json, factor: float) -> float:
    """Of cosines and sines with YaRN: given, or by the logarithm of the stretch."""
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
