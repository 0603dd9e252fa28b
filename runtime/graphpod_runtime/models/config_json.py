"""A model's shape, read from the config.json of its folder.

What is built stands once, in `graphpod_policy.model.config_json`: `graphpod explain` refuses what this refuses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphpod_policy.model.architectures import Architecture
from graphpod_policy.model.config_json import ConfigJson, Json
from graphpod_policy.model.depth import depth_of
from graphpod_policy.model.fp8_scheme import ONLINE
from graphpod_policy.model.numbers import Numbers
from graphpod_policy.model.shown import shown
from graphpod_runtime.base.errors import ModelInvalid, ModelUnsupported
from graphpod_runtime.base.files.json_file import JsonFileInvalid, json_object
from graphpod_runtime.base.shapes import Activation, ModelShape, Stretch
from graphpod_runtime.models.rope.stretches import LinearStretch, Llama3Stretch, PairStretch, YarnStretch

MOST_TOKENS = 1 << 31
"""Of a vocabulary: a token has so many numbers in a tensor."""

STRETCHES: Mapping[str, Callable[..., Stretch]] = {
    "linear": LinearStretch,
    "llama3": Llama3Stretch,
    "longrope": PairStretch,
    "yarn": YarnStretch,
}
"""How positions are stretched, by the rope type."""


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
        numbers = Numbers.of(declared)
        latent = declared.latent()
        head_dim = latent.cached if latent else int(config.get("head_dim") or hidden // heads)
        rotated, biases, windows = declared.rotary_width(head_dim), self._biases(), declared.windows()
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
            norm_eps=numbers.norm_eps,
            rope_theta=numbers.rope_theta,
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
            stretch=numbers.stretch and STRETCHES[numbers.stretch[0]](**numbers.stretch[1]),
            windows=windows,
            caps=(numbers.cap,) * depth_of(config) if numbers.cap else (),
            local_rope_theta=numbers.local_rope_theta,
            attention_scale=numbers.attention_scale,
            latent=latent,
            embedding_scale=numbers.embedding_scale,
            norm_results=row.norm_results,
            norm=row.norm,
            norm_inputs=row.norm_inputs,
            residual_scale=numbers.residual_scale,
            logit_scale=numbers.logit_scale,
            mixture=declared.mixture(),
            clip=numbers.clip,
            logit_cap=numbers.logit_cap,
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
