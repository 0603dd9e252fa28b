"""Failures of compiling, capture and self-check that a start survives by doing without."""

from typing import ClassVar

from graphpod_policy import ExitCode


class GraphError(Exception):
    """Base: `rule` is the policy rule that the failure fires, `code` the exit code when degrading is forbidden."""

    rule: ClassVar[str]
    code: ClassVar[ExitCode]
    agreed = False
    """Whether every one of several ranks raises it."""


class CaptureFailed(GraphError):
    """The code cannot be captured, or raised while it was. The message names model, layer, segment and size."""

    rule = "CaptureFailed"
    code = ExitCode.CaptureFailed


class CaptureOutOfMemory(GraphError):
    """The graph pool is full."""

    rule = "CaptureOutOfMemory"
    code = ExitCode.CaptureOutOfMemory


class CompileFailed(GraphError):
    """A function could not be compiled, what was made of it not be loaded, or it computes something else. The message
    says which, and why."""

    rule = "CompileFailed"
    code = ExitCode.CompileFailed


class DeviceFailed(Exception):
    """The device reported an error other than being out of memory. Its state is unknown: nothing that runs on it can be
    trusted, so the process ends with this code and whoever runs it starts a weaker plan.
    """

    code: ClassVar[ExitCode] = ExitCode.CaptureFailed


class SelfCheckFailed(GraphError):
    """A replay differs from the same code uncaptured, or from plain eager beyond rounding."""

    rule = "SelfCheckFailed"
    code = ExitCode.SelfCheckFailed


class ReplayFailed(RuntimeError):
    """Code in a break raised during a replay. The message names model, layer, segment and size."""


class ModelInvalid(Exception):
    """The model's folder cannot be served: no weights, corrupt weights, unknown architecture, wrong shapes.

    The message says what is wrong, in which file, and what to do.
    """


class SourceFailed(ModelInvalid):
    """Weights that are streamed do not come from their source. The message begins with the reason's word."""


class ModelUnsupported(ModelInvalid):
    """The model is whole, and this engine does not have what it needs: the message names it."""
