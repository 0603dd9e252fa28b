"""What a service asks of its engine, as far as graphs care."""

from dataclasses import dataclass

from graphpod_policy.enums import (
    AllToAll,
    AttentionBackend,
    CompileMode,
    Device,
    KvCacheDtype,
    OnCaptureFailure,
    OnUnsupported,
    Phase,
    Policy,
    Quantization,
    Role,
    SpeculativeMethod,
)

MOST_TREE_TOKENS = 62
"""Drafts of one sequence in a pass where they are a tree: a mask of a row has so many bits."""


@dataclass(frozen=True, slots=True)
class Features:
    """The features of one service, as its spec says them. A default means: not used.

    `max_model_len` is in tokens (prompt and answer), `max_batch` in sequences that decode together (None: Auto, see
    `limits`),
    `prefill_chunk` in tokens of one prefill pass (None: the largest prefill size); sizes ending in `_bytes`
    are bytes; `tensor` to `context` count devices or parts, 1 means undivided; `gpus` are those of one pod.
    """

    device: Device = Device.Cpu
    gpus: int = 0
    nodes: int = 1
    max_model_len: int | None = None
    max_batch: int | None = None
    prefill_chunk: int | None = None

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    """Data-parallel attention ranks."""
    expert: int = 1
    context: int = 1
    """Parts one sequence is split into."""
    all_to_all: AllToAll | None = None
    two_batch_overlap: bool = False
    expert_rebalancing: bool = False
    symmetric_memory: bool = False

    speculative: SpeculativeMethod | None = None
    speculative_steps: int = 3
    """Draft tokens proposed in one pass."""
    speculative_topk: int = 1
    """Branches kept at each draft step; with more than one, drafts are a tree."""
    speculative_draft_tokens: int | None = None
    """Drafts of a tree; None: as many as steps by branches, or as a pass can verify."""
    speculative_draft: str | None = None
    """Folder of the draft model, where the method has one."""
    speculative_max_batch: int | None = None
    """Sequences up to which a decode pass verifies drafts; None: Auto, measured by each pod."""
    host_cache_bytes: int | None = None
    host_cache_folder: str | None = None
    """Of the files under the host tier; None: there are none."""
    host_cache_file_bytes: int | None = None
    """Of a pod's files, at most."""
    cpu_offload_bytes: int | None = None
    cpu_offload_staging: bool = False
    """Offloaded weights are copied from pinned memory to fixed staging addresses."""
    lora: tuple[str, ...] = ()
    quantization: Quantization | None = None
    kv_cache_dtype: KvCacheDtype = KvCacheDtype.Auto
    attention: AttentionBackend = AttentionBackend.Auto
    full_compile: bool = False
    """The whole model through torch.compile (`graph.compile` compiles the halves of a layer instead)."""
    deterministic: bool = False
    sleep: bool = False
    """Weights and cache can leave the device and come back to their addresses."""
    sleep_after_seconds: int | None = None
    """Without requests, until they do so by themselves; None: on command only."""
    reload: bool = False
    """Weights of the model's folder may take the place of those that were read at the start."""
    role: Role = Role.Both

    @property
    def verify_width(self) -> int:
        """Tokens of one sequence in a decode pass: 1, or the drafts and the token before them."""
        if self.speculative is None:
            return 1
        if not self.draft_trees:
            return self.speculative_steps + 1
        drafts = min(MOST_TREE_TOKENS, self.speculative_steps * self.speculative_topk)
        return (self.speculative_draft_tokens or drafts) + 1

    @property
    def draft_trees(self) -> bool:
        """Whether several drafts may follow the same token."""
        return self.speculative is not None and self.speculative_topk > 1


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """What the user wrote under `spec.graph`. Sizes None: the default ladder. `budget_bytes` and `budget_seconds` are
    what the captures of both phases may take together; None: what the ladders take. `prefill_cut`: `prefill_sizes` are
    not the user's, but what a budget left of the default ladder.
    """

    prefill: Policy = Policy.Auto
    decode: Policy = Policy.Auto
    prefill_sizes: tuple[int, ...] | None = None
    decode_sizes: tuple[int, ...] | None = None
    compile: CompileMode = CompileMode.Auto
    budget_bytes: int | None = None
    budget_seconds: int | None = None
    on_unsupported: OnUnsupported = OnUnsupported.Degrade
    on_capture_failure: OnCaptureFailure = OnCaptureFailure.Degrade
    prefill_cut: bool = False

    def policy(self, phase: Phase) -> Policy:
        """The policy asked for `phase`."""
        return self.prefill if phase is Phase.Prefill else self.decode

    def sizes(self, phase: Phase) -> tuple[int, ...] | None:
        """The sizes asked for `phase`."""
        return self.prefill_sizes if phase is Phase.Prefill else self.decode_sizes
