"""A causal model of transformers from a folder's config.json: its modules on the meta device, no weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from graphpod_policy.model.families import attends_to_all
from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.files.regular_file import read_regular
from graphpod_runtime.models.by_transformers import interface
from graphpod_runtime.models.by_transformers.attention_call import REACH
from graphpod_runtime.models.by_transformers.experts import NAME as EXPERTS
from graphpod_runtime.models.by_transformers.experts import register as register_experts
from graphpod_runtime.models.by_transformers.rotary import grows
from graphpod_runtime.models.by_transformers.unsupported import FamilyUnsupported, Lack

NO_LIMIT = 1 << 17
"""Positions of a model whose configuration names no limit."""
POSITIONS = ("max_position_embeddings", "max_seq_len", "n_positions", "max_sequence_length", "seq_length")
"""Fields of the most tokens of one sequence; the first that says so."""
PRETRAINED = "original_max_position_embeddings"


def config_of(folder: Path) -> Any:
    """transformers' configuration of the model in `folder`. ModelInvalid or FamilyUnsupported says what is wrong."""
    path = folder / "config.json"
    try:
        whole = json.loads(read_regular(path))
        if whole.get("auto_map"):
            raise FamilyUnsupported(
                Lack.Config, f"{path}: auto_map names code in the model's folder, which this engine never runs"
            )
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except FamilyUnsupported:
        raise
    except OSError as error:
        raise ModelInvalid(f"{path}: {error}") from error
    except Exception as error:
        # Whatever a family's validation raises is about what the user wrote.
        raise FamilyUnsupported(
            Lack.Config, f"{path}: transformers {transformers.__version__} does not take it: {_first_line(error)}"
        ) from error
    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise FamilyUnsupported(
            Lack.Config, f"{path}: transformers {transformers.__version__} has no causal model {config.model_type!r}"
        )
    named, built = whole.get("architectures"), MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]
    if named and named[0] != built:
        raise FamilyUnsupported(
            Lack.Config, f"{path}: architecture {named[0]!r} is not built; of {config.model_type}, {built} is"
        )
    return config


def assembled(config: Any, dtype: torch.dtype) -> Any:
    """The model of `config` in `dtype`, on the meta device, with our attention. FamilyUnsupported when transformers
    cannot build it."""
    interface.register()
    register_experts()
    try:
        try:
            model = _built(config, dtype, interface.NAME)
        except KeyError as error:
            if error.args != (interface.NAME,):
                raise
            # Its classes of attention have names: one that is written out may be read, and masks are ours.
            model = _built(config, dtype, "eager")
            interface.attend_by(model, interface.NAME)
    except Exception as error:
        raise FamilyUnsupported(
            Lack.Config,
            f"{config.model_type}: transformers {transformers.__version__} does not build it: {_first_line(error)}",
        ) from error
    for module in model.modules():
        if hasattr(module, "warn_if_padding_and_no_attention_mask"):
            # It reads token ids on the host, to warn of padding that no pass here has.
            module.warn_if_padding_and_no_attention_mask = _no_warning
    return model.eval().requires_grad_(False)


def _built(config: Any, dtype: torch.dtype, attention: str) -> Any:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=attention, experts_implementation=EXPERTS
        )


def _no_warning(*_: Any) -> None:
    """In the place of a warning."""


def positions_of(config: Any) -> int:
    """The most tokens of one sequence: with rotary frequencies that depend on the longest sequence of a pass, as many
    as in pretraining, up to which they stay what they are; with attention to chosen keys, as many as are chosen, up to
    which it is attention to all."""
    text = config.get_text_config(decoder=True)
    limit = next((int(found) for name in POSITIONS if (found := getattr(text, name, None))), NO_LIMIT)
    if chosen := getattr(text, REACH, None):
        limit = min(limit, int(chosen))
    if whole := attends_to_all(text.model_type, text.to_dict()):
        limit = min(limit, whole)
    parameters = getattr(text, "rope_parameters", None) or {}
    for part in (parameters, *(part for part in parameters.values() if isinstance(part, Mapping))):
        if grows(str(part.get("rope_type", ""))):
            named = (part.get(PRETRAINED), getattr(text, PRETRAINED, None), limit)
            limit = min(limit, int(next(filter(None, named))))
    return limit


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
