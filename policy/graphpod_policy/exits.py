"""Exit codes of the engine container: the operator reads them after a pod has died."""

from enum import IntEnum


class ExitCode(IntEnum):
    """One code for each kind of death. The termination message's first line starts with the name."""

    Drained = 0
    """SIGTERM, requests finished or cut at the deadline."""
    ConfigInvalid = 10
    """engine.json cannot be read, or holds a field this engine does not know."""
    ModelInvalid = 11
    """Weights missing, corrupt or of an architecture this engine does not know."""
    CaptureFailed = 12
    """A capture failed and `onCaptureFailure` is Fail, or it ended the engine's process."""
    CaptureOutOfMemory = 13
    """Capture ran out of memory and no shorter ladder was left."""
    SelfCheckFailed = 14
    """A replay differed from the uncaptured code and `onCaptureFailure` is Fail, or ended the engine's process."""
    EngineDied = 15
    """The engine process ended without a word."""
    Stuck = 16
    """One size or stage of the start exceeded its limit, or the engine's loop stopped turning."""
    FeatureNotBuilt = 17
    """The configuration asks for a feature this engine does not have."""
    PolicyRefused = 18
    """A fact stands against a policy that was asked for by name, and `onUnsupported` is Fail."""
    CompileFailed = 19
    """A function could not be compiled and `onCaptureFailure` is Fail."""
