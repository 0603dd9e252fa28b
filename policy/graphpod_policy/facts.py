"""What a spec cannot say: the model's shape, the device, what was free and found. Known to the engine once it has
loaded the model, and to `graphpod explain` when its options give them. Facts can only weaken a plan.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from graphpod_policy.enums import ModelPath, SpeculativeMethod
from graphpod_policy.model.architectures import ARCHITECTURES
from graphpod_policy.model.config_json import CAPS, FULL, ConfigJson, rope_type
from graphpod_policy.model.depth import LAYERS, MOST_LAYERS
from graphpod_policy.model.draft_head import DRAFT_VOCAB, head_not_built, layers_of
from graphpod_policy.model.families import Family, attends_to_all, positions_before
from graphpod_policy.model.fp8_scheme import PARTS
from graphpod_policy.model.latent import Latent
from graphpod_policy.model.mixture import CHOSEN, COUNTS
from graphpod_policy.model.numbers import Numbers
from graphpod_policy.model.shown import cut, shown

GIB = 1 << 30
MOST_SIZE = 1 << 40
"""Of anything that a config.json counts: more than any model has."""

Read = TypeVar("Read")

LATENT_ATTENTION = ("DeepseekV2", "DeepseekV3", "DeepseekV32", "DeepseekV4", "GlmMoeDsa", "KimiK2")
"""Architectures with multi-head latent attention, by the beginning of their name."""
LINEAR_ATTENTION = ("Qwen3Next", "BailingMoeV2_5", "NemotronH", "Jamba", "FalconH1", "Qwen3_5", "KimiLinear")
"""Architectures with linear-attention or Mamba layers."""
DIFFUSION = ("LLaDA",)
"""Architectures that denoise blocks of tokens instead of decoding one after the other."""


POSITIONS = "max_position_embeddings"
"""The field of the most tokens of one sequence, before they are stretched."""


class ModelUnreadable(ValueError):
    """A config.json that does not describe a model; the message names the field."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model as its config.json describes it. `params` is an estimate from the shape, in weights: without norms,
    biases and routers; latent attention as if it were plain where the engine does not know the architecture.
    """

    architecture: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    experts: int = 0
    """Experts of each layer; 0: a dense model."""
    multimodal: bool = False
    expert_intermediate: int | None = None
    """Width of one expert; None: `intermediate`."""
    shared_intermediate: int = 0
    """Width of the experts that every token passes, together."""
    expert_layers: int | None = None
    """Layers that have experts, the others are dense; None: all."""
    chosen_experts: int = 0
    """Experts that compute a token; 0: not known."""
    tied: bool = False
    """Whether the embedding is the head, too."""
    max_position: int | None = None
    """Most tokens of one sequence, stretched positions included; None: not known."""
    windowed: bool = False
    """Whether any layer attends to a window only."""
    plain_scores: bool = True
    """Whether scores of attention are neither capped nor have sinks."""
    latent: Latent | None = None
    """Widths of latent attention: the KV cache has one vector of a token, whose `kv_heads` is 1 and `head_dim` its
    width. None: heads have keys and values."""
    gated: bool = True
    """Whether an MLP has a gate next to the matrix that widens."""
    path: ModelPath = ModelPath.Native
    """Whose modules compute it."""
    uncapturable: str = ""
    """What of its code a graph cannot hold, as a rehearsal has shown; empty: nothing."""
    not_built: str | None = None
    """What of the model the engine of this version does not have."""
    fp8_weights: int = 0
    """Weights that the checkpoint holds in FP8; 0: all are plain."""
    fp8_blocks: tuple[str, ...] = ()
    """Matrices of layers, by their names, that have a scale for each block in the checkpoint, in any layer."""
    draft: "ModelFacts | None" = None
    """The smaller model or the head that drafts for this one, where it is known."""
    head: SpeculativeMethod | None = None
    """Which form of head it is, of a few layers that read another model's hidden states; None: it is a model."""
    draft_vocab: int = 0
    """Rows of a head's own output matrix; 0: it uses that of its model, as it does its model's embedding."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ModelFacts":
        """The facts in a parsed config.json; ModelUnreadable names a field that is missing or no number."""
        if not isinstance(text := config.get("text_config", config), Mapping):
            raise ModelUnreadable(f"text_config: expected an object, found {shown(text)}")
        if not isinstance(named := config.get("architectures") or [], list):
            raise ModelUnreadable(f"architectures: expected a list of names, found {shown(named)}")
        declared = _usable(lambda: ConfigJson.of(config))
        if declared.family is not None:
            return _of_family(declared, declared.family, config)
        text = declared.fields
        heads, hidden = (_count(text, name) for name in ("num_attention_heads", "hidden_size"))
        layers = _count(text, LAYERS, most=MOST_LAYERS)
        known, latent = declared.row is not None, _usable(declared.latent)
        shape = cls(
            architecture=declared.architecture,
            layers=layers,
            hidden=hidden,
            intermediate=_count(text, "intermediate_size"),
            heads=heads,
            kv_heads=1 if latent else _count(text, "num_key_value_heads", heads),
            head_dim=latent.cached if latent else _count(text, "head_dim", hidden // heads),
            latent=latent,
            vocab=_count(text, "vocab_size"),
            multimodal="vision_config" in config or "audio_config" in config,
            tied=bool(text.get("tie_word_embeddings", False)),
            max_position=_usable(declared.positions)
            if known and text.get(POSITIONS)
            else _count(text, POSITIONS, 0) or None,
            windowed=bool(_usable(declared.windows)),
            plain_scores=not (known and text.get(CAPS[0])),
            gated=declared.row is None or declared.row.gated,
            not_built=_usable(declared.not_built),
            **_experts(declared, layers),
        )
        if known and not shape.not_built:
            _usable(lambda: (Numbers.of(declared), declared.unrotated()))
        if not known or shape.not_built or (scheme := _usable(declared.scheme)) is None:
            return shape
        blocks = scheme.in_blocks(layers)
        return replace(shape, fp8_weights=scheme.weights(layers, shape.matrices), fp8_blocks=blocks)

    @classmethod
    def of_head(cls, method: SpeculativeMethod, config: Mapping[str, Any]) -> "ModelFacts":
        """Those of a head of `method` with a parsed config.json, of Mtp with its model's; ModelUnreadable as `of`."""
        if (missing := _usable(lambda: head_not_built(method, config))) is not None:
            return replace(cls.of(config), head=method, not_built=missing)
        vocab = _count(config, DRAFT_VOCAB, 0)
        return replace(cls.of(layers_of(method, config)), head=method, draft_vocab=vocab, fp8_weights=0, fp8_blocks=())

    @property
    def matrices(self) -> dict[str, int]:
        """Weights of the matrices of a dense layer, by their names: what may be in FP8."""
        heads, kv = self.hidden * self.heads * self.head_dim, self.hidden * self.kv_heads * self.head_dim
        wide = self.hidden * self.intermediate
        sizes = ((heads, kv, kv), (heads,), (wide if self.gated else 0, wide), (wide,))
        return {
            part: size for parts, each in zip(PARTS, sizes, strict=True) for part, size in zip(parts, each, strict=True)
        }

    @property
    def params(self) -> int:
        """Weights: attention, gated MLP (of every expert where there are some), embedding, and a head of its own."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        if self.latent is not None:
            attention = self.latent.weights(self.hidden, self.heads)
        dense = (3 if self.gated else 2) * self.hidden * self.intermediate
        width = self.intermediate if self.expert_intermediate is None else self.expert_intermediate
        sparse = 3 * self.hidden * (self.experts * width + self.shared_intermediate)
        embeddings = (1 if self.tied else 2) * self.vocab * self.hidden
        if self.head is not None:
            embeddings = self.joining + self.draft_vocab * self.hidden
        if self.head is SpeculativeMethod.Eagle3:
            # Its attention reads the token and the state next to each other.
            embeddings += self.hidden * self.head_dim * (self.heads + 2 * self.kv_heads)
        return self.layers * attention + self.dense_layers * dense + self.sparse_layers * sparse + embeddings

    @property
    def joining(self) -> int:
        """Weights of a head that join a token and a state, of EAGLE-3 three states."""
        return (3 if self.head is SpeculativeMethod.Eagle3 else 2) * self.hidden * self.hidden

    @property
    def sparse_layers(self) -> int:
        """Layers that have experts."""
        if not self.experts:
            return 0
        return self.layers if self.expert_layers is None else self.expert_layers

    @property
    def dense_layers(self) -> int:
        """Layers that have one MLP."""
        return self.layers - self.sparse_layers

    def expanded(self, ranks: int) -> int:
        """Elements of a token that chosen experts keep at once, at most, on each of `ranks` that share their columns:
        each expert has a row of its own. What they read is next to gate and up, or their results are next to those in
        single precision."""
        whole = self.intermediate if self.expert_intermediate is None else self.expert_intermediate
        width = -(-whole // ranks)
        return self.chosen_experts * max(3 * self.hidden, self.hidden + 2 * width, 3 * width)

    @property
    def served(self) -> "ModelFacts":
        """The part that the engine runs: of a model that sees images, the text part of a known architecture."""
        row = ARCHITECTURES.get(self.architecture)
        return replace(self, multimodal=False) if row is not None and row.text_part else self

    @property
    def cached(self) -> int:
        """Elements of a token in the KV cache of one layer: keys and values, or one vector that is both."""
        return (2 if self.latent is None else 1) * self.kv_heads * self.head_dim

    @property
    def latent_attention(self) -> bool:
        """Whether attention works on a compressed KV (MLA)."""
        return self.architecture.startswith(LATENT_ATTENTION)

    @property
    def hybrid(self) -> bool:
        """Whether some layers are linear attention or Mamba."""
        return self.architecture.startswith(LINEAR_ATTENTION)

    @property
    def diffusion(self) -> bool:
        """Whether it denoises blocks instead of decoding token by token."""
        return self.architecture.startswith(DIFFUSION)


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known beyond the spec; None: not known. `attention_layers` were found in the loaded model,
    `configured_layers` are what its configuration gives this stage of the pipeline; `gpu_memory_bytes` is the memory
    of one GPU, `free_bytes` what captures may take of it (or of the host's memory on a CPU). `reads_whole_tables`: a
    captured decode step attends over the whole block table of every sequence, whatever its length (torch's attention on
    an old GPU).
    """

    attention_layers: int | None = None
    configured_layers: int | None = None
    model: ModelFacts | None = None
    gpu_memory_bytes: int | None = None
    free_bytes: int | None = None
    reads_whole_tables: bool = False


NOTHING_KNOWN = Facts()


def _of_family(declared: ConfigJson, family: Family, config: Mapping[str, Any]) -> ModelFacts:
    """The facts of a model that transformers computes; sizes that its config.json leaves out are the family's."""
    sizes = {name: value for name, value in _usable(lambda: family.sizes(config)).items() if value is not None}
    not_built = declared.not_built()
    # Of a model that is refused, sizes may have names that the table does not have.
    least = 1 if not_built else None
    heads, hidden = (_count(sizes, name, least) for name in ("heads", "hidden"))
    layers = _count(sizes, "layers", least, most=MOST_LAYERS)
    experts = _count(sizes, "experts", 0)
    return ModelFacts(
        architecture=declared.architecture,
        layers=layers,
        hidden=hidden,
        intermediate=_count(sizes, "intermediate", 4 * hidden),
        heads=heads,
        kv_heads=_count(sizes, "kv_heads", heads),
        head_dim=_count(sizes, "head_dim", max(1, hidden // heads)),
        vocab=_count(sizes, "vocab", least),
        experts=experts,
        expert_intermediate=_count(sizes, "expert_intermediate", 0) or None,
        tied=bool(sizes.get("tied", False)),
        max_position=_usable(lambda: _positions(declared, sizes)) or None,
        path=ModelPath.Transformers,
        not_built=not_built,
    )


def _positions(declared: ConfigJson, sizes: Mapping[str, Any]) -> int:
    """Of a model that transformers computes: where frequencies depend on the longest sequence, those of pretraining;
    where a query sees chosen keys only, as many as are chosen, so that it sees all; where it sees blocks of a long
    text, those of one that it sees whole."""
    positions = _count(sizes, "positions", 0)
    if declared.family and positions:
        positions = max(1, positions - positions_before(declared.family.model_type, declared.fields))
    if chosen := _count(sizes, "chosen_keys", 0):
        positions = min(positions, chosen) or chosen
    if declared.family and (whole := attends_to_all(declared.family.model_type, declared.fields)):
        positions = min(positions, whole)
    rope = declared.rope(FULL)
    kind = rope_type(rope)
    if "dynamic" not in kind and kind != "longrope":
        return positions
    original = rope.get("original_max_position_embeddings") or declared.fields.get("original_max_position_embeddings")
    return min(positions, int(original)) if original else positions


def _experts(declared: ConfigJson, layers: int) -> dict[str, Any]:
    """What ModelFacts have of experts: of an architecture that the engine knows as the engine reads it, else what most
    fields of such models mean."""
    if declared.row is not None:
        if (mixture := _usable(declared.mixture)) is None:
            return {}
        return {
            "experts": mixture.experts,
            "expert_intermediate": mixture.width,
            "shared_intermediate": mixture.shared,
            "expert_layers": len(mixture.layers),
            "chosen_experts": mixture.chosen,
        }
    text = declared.fields
    if not (experts := next((found for name in COUNTS if (found := _count(text, name, 0))), 0)):
        return {}
    width = _count(text, "moe_intermediate_size", 0)
    return {
        "experts": experts,
        "expert_intermediate": width or None,
        "shared_intermediate": _count(text, "shared_expert_intermediate_size", 0)
        or _count(text, "n_shared_experts", 0) * width,
        "expert_layers": sum(_has_experts(text, layers)),
        "chosen_experts": _count(text, CHOSEN, 0),
    }


def _has_experts(text: Mapping[str, Any], layers: int) -> Iterator[bool]:
    """Of each layer of a mixture of experts that the engine does not know: Qwen's step and exceptions, DeepSeek's first
    layers and frequency."""
    step, first = _count(text, "decoder_sparse_step", 1), _count(text, "first_k_dense_replace", 0)
    frequency = _count(text, "moe_layer_freq", 1)
    dense = text.get("mlp_only_layers") or ()
    if not isinstance(dense, list | tuple):
        raise ModelUnreadable(f"mlp_only_layers: expected a list of layers, found {shown(dense)}")
    for layer in range(layers):
        yield layer not in dense and (layer + 1) % step == 0 and layer >= first and layer % frequency == 0


def _usable(read: Callable[[], Read]) -> Read:
    """What `read` finds; ModelUnreadable where a field is missing or has no usable value."""
    try:
        return read()
    except KeyError as error:
        raise ModelUnreadable(f"field {error} is missing") from error
    except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelUnreadable(f"a field has no usable value ({cut(str(error))})") from error


def _count(config: Mapping[str, Any], name: str, default: int | None = None, most: int = MOST_SIZE) -> int:
    raw = config.get(name)
    if raw is None and default is not None:
        return default
    least = 0 if default == 0 else 1
    if not isinstance(raw, int) or isinstance(raw, bool) or raw < least:
        raise ModelUnreadable(f"{name}: expected a number of at least {least}, found {shown(raw)}")
    if raw > most:
        raise ModelUnreadable(f"{name}: expected a number of at most {most}, found {shown(raw)}")
    return raw
