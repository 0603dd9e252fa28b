"""Exit codes of the engine container: the operator reads them after a pod has died."""

from enum import IntEnum


class ExitCode(IntEnum):
    """One code for each kind of death. The termination message's first line starts with the name."""

    Drained = 0
    """SIGTERM, requests finished or cut at the deadline."""
    ConfigInvalid = 10
    """engine.json cannot be read, or holds a field this engine does not know."""
    ModelInvalid = 11
    """Weights missing or corrupt, or a config.json that describes no model."""
    CaptureFailed = 12
    """A capture failed and `onCaptureFailure` is Fail, or it ended the engine's process."""
    CaptureOutOfMemory = 13
    """Capture ran out of memory and no shorter ladder was left."""
    SelfCheckFailed = 14
    """A replay differed from the uncaptured code and `onCaptureFailure` is Fail, or ended the engine's process."""
    EngineDied = 15
    """The engine process ended without a message."""
    Stuck = 16
    """One size or stage of the start exceeded its limit, or the engine's loop stopped turning."""
    FeatureNotBuilt = 17
    """The configuration asks for a feature this engine does not have."""
    PolicyRefused = 18
    """A fact excludes a policy that was requested explicitly, and `onUnsupported` is Fail."""
    CompileFailed = 19
    """A function could not be compiled and `onCaptureFailure` is Fail."""
    ContextTooLong = 20
    """maxModelLen is more than the model's positions."""
    AttentionUnavailable = 21
    """The attention kernels that were requested cannot do this work on this device."""
    KvCacheTooSmall = 22
    """The KV cache cannot hold one sequence of maxModelLen."""
    KvCacheTooLarge = 23
    """kvCacheMemory does not fit next to weights and graphs."""
    WeightsTooLarge = 24
    """The weights do not fit into the device's memory."""
    ModelUnsupported = 25
    """The model's architecture, or something its config.json asks for, is not in this engine."""
    GpuMissing = 26
    """The configuration needs more GPUs than the process can see."""
    ParallelismInvalid = 27
    """The model cannot be split the way spec.parallelism says."""
    SettingInvalid = 28
    """A port, a file or an environment variable that the engine was given cannot be used."""
    DtypeUnavailable = 29
    """The type of weights and activations that was requested cannot be used on this GPU or for this model."""
    HostCacheInvalid = 30
    """hostCache does not fit into the container's memory, or has no prefix cache to belong to."""
    RankDied = 31
    """Of several ranks, the process of one ended without a message."""
    RankStuck = 32
    """Of several ranks, the process of one stands still: its heart beats no more."""
    SourceFailed = 33
    """Weights that are streamed cannot be read from their source. The message begins with the reason's word."""


NEXT_STEP: dict[ExitCode, str] = {
    ExitCode.PolicyRefused: "set spec.graph.onUnsupported: Degrade to run a weaker policy",
    ExitCode.ContextTooLong: "lower spec.engine.maxModelLen",
    ExitCode.AttentionUnavailable: "set spec.engine.attention: Auto",
    ExitCode.KvCacheTooSmall: "leave spec.engine.maxModelLen out, set spec.engine.kvCacheDtype: Fp8, or add memory",
    ExitCode.KvCacheTooLarge: "lower spec.engine.kvCacheMemory, or remove it",
    ExitCode.WeightsTooLarge: "use a larger GPU or a smaller model, or on a CPU raise spec.resources.limits.memory",
    ExitCode.ModelUnsupported: "use a model that graphpod explain --model-config config.json accepts",
    ExitCode.GpuMissing: "set nvidia.com/gpu in spec.resources.limits, and use the CUDA image on a node with GPUs; "
    "outside Kubernetes, install PyTorch's CUDA build on a machine with GPUs, or use --device cpu",
    ExitCode.ParallelismInvalid: "change spec.parallelism to sizes that divide the model and match the GPUs",
    ExitCode.DtypeUnavailable: "remove spec.engine.dtype or spec.engine.quantization, whichever the message names",
    ExitCode.HostCacheInvalid: "lower spec.engine.hostCache.size, or raise spec.resources.limits.memory",
    ExitCode.SettingInvalid: "correct that setting",
}
"""What to do about the ends of a start that the configuration, the model and the node decide."""
