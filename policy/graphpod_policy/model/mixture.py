"""Mixtures of experts: what a config.json says of their number, width and place, for families that the engine knows.

A router gives each expert of a layer a score for each token. The chosen experts, those of the largest scores, compute
the token like small MLPs, and their results are added by weights: a softmax of the scores. Mixtral and Granite take it
over the chosen ones, Qwen and OLMoE over all, and may divide by the sum of the chosen, which is the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

COUNTS = ("num_experts", "n_routed_experts", "num_local_experts")
"""Fields that count the experts of a layer; the first that says so."""
CHOSEN = "num_experts_per_tok"
"""The field of how many experts compute a token."""
MOST_EXPERTS = 1023
"""Of a layer: more than any model has, and as many as torch's grouped product takes on a GPU."""


@dataclass(frozen=True, slots=True)
class MixtureFields:
    """Where an architecture's config.json says it."""

    width: str = "intermediate_size"
    """The field of an expert's width."""
    normalised: str = ""
    """The field that asks for weights whose sum is 1; "": they have that sum."""
    shared: str = ""
    """The field of the width of one more expert, which computes every token, by a gate of its own; "": there is none.
    """
    sparse: bool = False
    """Whether some layers may be dense: those of `mlp_only_layers`, and all but each `decoder_sparse_step`-th."""


class Mixture(NamedTuple):
    """The experts of a model."""

    experts: int
    """Of each layer that has any."""
    chosen: int
    """For each token."""
    width: int
    normalised: bool
    """Whether the weights of the chosen experts have the sum 1."""
    shared: int
    """Width of the expert that computes every token; 0: there is none."""
    layers: tuple[int, ...]
    """Those that have experts; the others are dense."""


def mixture_of(fields: MixtureFields | None, config: Mapping[str, Any]) -> Mixture | None:
    """The experts that `config` declares by `fields`; None: all layers are dense. KeyError, TypeError or ValueError for
    a field that is missing or has no usable value."""
    if fields is None:
        return None
    if not any(name in config for name in COUNTS):
        raise KeyError(COUNTS[0])
    experts = next((found for name in COUNTS if (found := int(config.get(name, 0)))), 0)
    layers = sparse_layers(config) if fields.sparse else tuple(range(int(config["num_hidden_layers"])))
    if not experts or not layers:
        return None
    chosen = int(config[CHOSEN])
    if not 0 < experts <= MOST_EXPERTS:
        raise ValueError(f"{experts} experts; a layer has 1 to {MOST_EXPERTS}")
    if not 0 < chosen <= experts:
        raise ValueError(f"{CHOSEN} {chosen} of {experts} experts")
    return Mixture(
        experts=experts,
        chosen=chosen,
        width=int(config[fields.width]),
        normalised=not fields.normalised or bool(config.get(fields.normalised)),
        shared=int(config.get(fields.shared, 0)) if fields.shared else 0,
        layers=layers,
    )


def sparse_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Layers that have experts, where some may have none."""
    step, dense = int(config.get("decoder_sparse_step", 1)), config.get("mlp_only_layers") or ()
    if step < 1:
        raise ValueError(f"decoder_sparse_step {step}")
    return tuple(
        layer for layer in range(int(config["num_hidden_layers"])) if layer not in dense and not (layer + 1) % step
    )
