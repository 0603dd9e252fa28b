"""Mixtures of experts: what a config.json says of their number, width and place, for families that the engine knows.

A router gives each expert of a layer a score for each token. The chosen experts, those of the largest scores, compute
the token like small MLPs, and their results are added by weights: a softmax of the scores. Mixtral and Granite take it
over the chosen ones, Qwen and OLMoE over all, and may divide by the sum of the chosen, which is the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphpod_policy.model.depth import depth_of

COUNTS = ("num_experts", "n_routed_experts", "num_local_experts")
"""Fields that count the experts of a layer; the first that says so."""
CHOSEN = "num_experts_per_tok"
"""The field of how many experts compute a token."""
GROUPED = "group_limited_greedy"
"""The `topk_method` that chooses experts of a few groups only."""
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
    first_dense: str = ""
    """The field of how many layers at the bottom are dense; "": none is."""
    shared_experts: str = ""
    """The field of how many experts, side by side, compute every token without a gate; "": none does."""
    scale: str = ""
    """The field of what the chosen experts' weights are multiplied by; "": by nothing."""
    grouped: bool = False
    """Whether `topk_method` may ask for experts of a few groups only: `topk_group` of `n_group`."""
    wide_scores: bool = False
    """Whether scores are computed in single precision."""


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
    shared_gate: bool = True
    """Whether the expert that computes every token has a gate."""
    scale: float = 1.0
    """What the chosen experts' weights are multiplied by."""
    groups: int = 1
    """Into which the experts are divided, in their order."""
    chosen_groups: int = 1
    """Groups of a token, those of the largest scores: others' experts are not chosen."""
    wide_scores: bool = False
    """Whether scores are computed in single precision."""
    first: int = 0
    """The first expert that a rank has."""
    own: int = 0
    """Experts that a rank has, from its first on; 0: it has all, or columns of all."""

    @property
    def held(self) -> range:
        """The experts that have matrices."""
        return range(self.first, self.first + (self.own or self.experts))

    def staged(self, first: int, end: int) -> "Mixture":
        """That of the layers [first, end), counted from `first`."""
        return self._replace(layers=tuple(layer - first for layer in self.layers if first <= layer < end))

    def split(self, rank: int, ranks: int, groups: int = 1) -> "Mixture":
        """The share of `rank`. Each of `groups` of ranks next to each other has a share of the experts, and its ranks
        share the columns of these. The columns of the one of every token all ranks share. All of it must divide."""
        slices, own = ranks // groups, self.experts // groups if groups > 1 else 0
        first = rank // slices * own
        return self._replace(width=self.width // slices, shared=self.shared // ranks, first=first, own=own)


def mixture_of(fields: MixtureFields | None, config: Mapping[str, Any]) -> Mixture | None:
    """The experts that `config` declares by `fields`; None: all layers are dense. KeyError, TypeError or ValueError for
    a field that is missing or has no usable value."""
    if fields is None:
        return None
    if not any(name in config for name in COUNTS):
        raise KeyError(COUNTS[0])
    experts = next((found for name in COUNTS if (found := int(config.get(name, 0)))), 0)
    first = int(config.get(fields.first_dense, 0)) if fields.first_dense else 0
    layers = sparse_layers(config) if fields.sparse else tuple(range(max(0, first), depth_of(config)))
    if not experts or not layers:
        return None
    chosen = int(config[CHOSEN])
    if not 0 < experts <= MOST_EXPERTS:
        raise ValueError(f"{experts} experts; a layer has 1 to {MOST_EXPERTS}")
    if not 0 < chosen <= experts:
        raise ValueError(f"{CHOSEN} {chosen} of {experts} experts")
    groups, chosen_groups = _groups(fields, config, experts, chosen)
    width = int(config[fields.width])
    every = int(config.get(fields.shared_experts, 0)) if fields.shared_experts else 0
    return Mixture(
        experts=experts,
        chosen=chosen,
        width=width,
        normalised=not fields.normalised or bool(config.get(fields.normalised)),
        shared=int(config.get(fields.shared, 0)) if fields.shared else every * width,
        layers=layers,
        shared_gate=bool(fields.shared),
        scale=float(config.get(fields.scale, 1.0)) if fields.scale else 1.0,
        groups=groups,
        chosen_groups=chosen_groups,
        wide_scores=fields.wide_scores,
    )


def _groups(fields: MixtureFields, config: Mapping[str, Any], experts: int, chosen: int) -> tuple[int, int]:
    """Of the experts, and of those of a token; 1 and 1 where all experts may be chosen."""
    if not fields.grouped or config.get("topk_method") != GROUPED:
        return 1, 1
    groups, taken = int(config["n_group"]), int(config["topk_group"])
    if not 0 < groups <= experts or experts % groups:
        raise ValueError(f"n_group {groups} does not divide {experts} experts")
    if not 0 < taken <= groups or chosen > taken * (experts // groups):
        raise ValueError(f"topk_group {taken} of {groups} groups of {experts // groups}, for {chosen} chosen experts")
    return groups, taken


def sparse_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Layers that have experts, where some may have none."""
    step, dense = int(config.get("decoder_sparse_step", 1)), config.get("mlp_only_layers") or ()
    if step < 1:
        raise ValueError(f"decoder_sparse_step {step}")
    return tuple(layer for layer in range(depth_of(config)) if layer not in dense and not (layer + 1) % step)
