"""The words of graph policy: one spelling for spec, status, metrics, logs and code."""

from enum import StrEnum


class Phase(StrEnum):
    """Which half of generation a forward pass belongs to."""

    Prefill = "prefill"
    Decode = "decode"


class Policy(StrEnum):
    """How the forward passes of one phase are executed; the values are the API's words."""

    Auto = "Auto"
    """Let the rules choose (request only, never planned or effective)."""
    Piecewise = "Piecewise"
    """Traced once, split at the attention ops, each piece captured for each size (prefill)."""
    Breakable = "Breakable"
    """Captured in segments; attention runs eagerly in the breaks between them."""
    Full = "Full"
    """One graph for the whole step (decode)."""
    Disabled = "Disabled"
    """Eager."""


class Backend(StrEnum):
    """What a segment is captured with."""

    CudaGraph = "CudaGraph"
    Recorder = "Recorder"
    """The CPU twin: same failure modes, no speed-up."""


class Device(StrEnum):
    """Where the engine computes."""

    Cpu = "cpu"
    Cuda = "cuda"


class Role(StrEnum):
    """Which phases a pod serves."""

    Both = "Both"
    Prefill = "Prefill"
    Decode = "Decode"


class CompileMode(StrEnum):
    """How the two halves of a layer, before and after attention, are compiled."""

    Auto = "Auto"
    """Let the rules choose (request only, never planned)."""
    Nothing = "None"
    """Not compiled: the operators as the model's code calls them."""
    Inductor = "Inductor"
    """Compiled once for all sizes."""
    Autotune = "Autotune"
    """Compiled, and at most four decode sizes tuned by measuring (13 to 32 s each when the cache is cold)."""


class ModelPath(StrEnum):
    """Whose modules compute a model."""

    Native = "Native"
    """The engine's own decoder."""
    Transformers = "Transformers"
    """Those of the library transformers, on the engine's weights, attention, KV cache and graphs."""


class SpeculativeMethod(StrEnum):
    """How draft tokens are proposed."""

    Ngram = "Ngram"
    DraftModel = "DraftModel"
    Eagle = "Eagle"
    Eagle3 = "Eagle3"
    Mtp = "Mtp"
    """The model's own multi-token prediction layers."""


class Quantization(StrEnum):
    """Format of the weights."""

    Fp8 = "Fp8"
    Gguf = "Gguf"
    """Weights kept quantised as in the GGUF file (a converted file is not quantised any more)."""


class KvCacheDtype(StrEnum):
    """Element type of the KV cache."""

    Auto = "Auto"
    """That of the activations."""
    Fp8 = "Fp8"


class PrefixCache(StrEnum):
    """Whether requests share the KV of a prefix."""

    Auto = "Auto"
    """On."""
    Off = "Off"


class ToolParser(StrEnum):
    """How a model's answers write calls of tools."""

    Auto = "Auto"
    """As the chat template shows."""
    Off = "None"
    """Not read: calls stay text."""
    DeepSeekV3 = "DeepSeekV3"
    DeepSeekV31 = "DeepSeekV31"
    DeepSeekV32 = "DeepSeekV32"
    Glm4 = "Glm4"
    Granite = "Granite"
    Harmony = "Harmony"
    Hermes = "Hermes"
    Jamba = "Jamba"
    KimiK2 = "KimiK2"
    Llama3Json = "Llama3Json"
    LongCat = "LongCat"
    MiniMaxM2 = "MiniMaxM2"
    Mistral = "Mistral"
    Phi4Mini = "Phi4Mini"
    Pythonic = "Pythonic"
    Qwen3Coder = "Qwen3Coder"
    SeedOss = "SeedOss"


class ReasoningParser(StrEnum):
    """How a model's answers write reasoning."""

    Auto = "Auto"
    """As the chat template shows."""
    Off = "None"
    """Not read: reasoning stays text."""
    Harmony = "Harmony"
    Mistral = "Mistral"
    SeedOss = "SeedOss"
    Think = "Think"


class SamplingSource(StrEnum):
    """Where a request's sampling parameters come from if it leaves them out."""

    Model = "Model"
    """generation_config.json of the model's folder."""
    OpenAI = "OpenAI"
    """OpenAI's own defaults: temperature 1, nothing cut."""


class AttentionBackend(StrEnum):
    """Which kernels compute attention."""

    Auto = "Auto"
    Torch = "Torch"
    FlashInfer = "FlashInfer"
    Fa3 = "Fa3"
    Triton = "Triton"


class AllToAll(StrEnum):
    """How tokens travel to their experts and back."""

    DeepEp = "DeepEp"
    MegaMoe = "MegaMoe"
    FlashInfer = "FlashInfer"
    Mooncake = "Mooncake"


class Severity(StrEnum):
    """How strongly a rule speaks."""

    Unsupported = "Unsupported"
    """Cannot work: a request for it follows `graph.onUnsupported`."""
    Unproven = "Unproven"
    """Auto avoids it; an explicit request overrides and is recorded as forced."""
    Adjust = "Adjust"
    """Changes sizes or a flag."""
    Gate = "Gate"
    """Decided for each batch at run time; the batch runs eagerly and is counted."""


class Stage(StrEnum):
    """Where a decision was taken."""

    Spec = "Spec"
    Engine = "Engine"
    Runtime = "Runtime"


class Outcome(StrEnum):
    """What a decision did."""

    Excluded = "Excluded"
    Adjusted = "Adjusted"
    Forced = "Forced"
    Degraded = "Degraded"
    Refused = "Refused"


class OnUnsupported(StrEnum):
    """What an explicit request for an unsupported policy leads to."""

    Degrade = "Degrade"
    Fail = "Fail"


class OnCaptureFailure(StrEnum):
    """What a failed capture or self-check leads to."""

    Degrade = "Degrade"
    Fail = "Fail"


class Duty(StrEnum):
    """What the engine must do beyond capturing, because a rule of the plan says so."""

    SameLadderEverywhere = "SameLadderEverywhere"
    """Every rank captures the same sizes in the same order."""
    StaticStageBuffers = "StaticStageBuffers"
    """A pipeline stage reads its input from buffers that never move."""
    AllRankVote = "AllRankVote"
    """A batch runs on graphs only if every rank can run its part on them."""
    LoadsInBreaks = "LoadsInBreaks"
    """A layer's load from the host cache is waited for in the break, never inside a segment."""
    LoadsBeforeReplay = "LoadsBeforeReplay"
    """Loads from the host cache are waited for before the pass that reads them is replayed."""
    JoinAfterLoad = "JoinAfterLoad"
    """A request joins decode only after its load event; write-back is ordered by events."""
    FinalScales = "FinalScales"
    """Scales are calibrated and final before the first capture."""
    ModelDtypeOutput = "ModelDtypeOutput"
    """A break's output has the model's element type, not the cache's."""
    FixedGemm = "FixedGemm"
    """One matrix-multiplication kernel for every batch size."""
    NoKvSplit = "NoKvSplit"
    """Decode attention does not split a sequence's KV."""
    HiddenStatesOut = "HiddenStatesOut"
    """Graphs leave the hidden states of every token for the draft model."""
    AuxiliaryStatesOut = "AuxiliaryStatesOut"
    """Graphs leave the hidden states of some inner layers, too."""
    VerifyWidth = "VerifyWidth"
    """A decode graph holds all draft tokens of each sequence."""
    StaticAdapterBuffers = "StaticAdapterBuffers"
    """Adapters live in buffers that never move; a batch only changes indices into them."""
    TextBodyOnly = "TextBodyOnly"
    """Only the language model's layers are captured; encoders and merging stay outside."""
    LayersAreBreaks = "LayersAreBreaks"
    """Linear-attention and Mamba layers are breaks, as attention is."""


class FallbackReason(StrEnum):
    """Why one forward pass ran eagerly. Closed: every value is a gate's rule id or one of the first five."""

    ForcedEager = "ForcedEager"
    """A debug mode of the engine sends every pass there."""
    Disabled = "Disabled"
    WarmingUp = "WarmingUp"
    SizeAboveLadder = "SizeAboveLadder"
    NotCaptured = "NotCaptured"
    TargetVerifyGate = "TargetVerifyGate"
    HiddenStateGate = "HiddenStateGate"
    InputLogprobsGate = "InputLogprobsGate"
    InputEmbedsGate = "InputEmbedsGate"
    AdapterGate = "AdapterGate"
    RankVoteGate = "RankVoteGate"
    SlotGate = "SlotGate"
    PaddingGate = "PaddingGate"
    Recompiled = "Recompiled"
