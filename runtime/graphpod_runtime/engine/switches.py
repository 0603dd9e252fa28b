"""Switches for tests and debugging, read from the environment.

GRAPHPOD_FAULT=<kind>:<phase>:<size> makes one step of the start fail: `capture` raises in the captured code,
`capture-oom` runs the pool out of memory there, `selfcheck` corrupts what the replay of that size returns to the
self-check. GRAPHPOD_CHECK_ADDRESSES=1 asserts before every replay that no registered memory has moved.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from graphpod_policy import ExitCode, Phase
from graphpod_runtime.engine.failure import StartFailure

FAULT = "GRAPHPOD_FAULT"
CHECK_ADDRESSES = "GRAPHPOD_CHECK_ADDRESSES"


class FaultKind(StrEnum):
    """What is made to fail."""

    Capture = "capture"
    CaptureOom = "capture-oom"
    SelfCheck = "selfcheck"


@dataclass(frozen=True, slots=True)
class Switches:
    """What the environment asked for; the default is nothing."""

    fault: tuple[FaultKind, Phase, int] | None = None
    check_addresses: bool = False

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> "Switches":
        """StartFailure for a fault that cannot be understood: a test must not pass because its fault was ignored."""
        fault = None
        if text := environment.get(FAULT):
            try:
                kind, phase, size = text.split(":")
                fault = (FaultKind(kind), Phase(phase), int(size))
            except ValueError as error:
                raise StartFailure(
                    ExitCode.ConfigInvalid,
                    f"{FAULT}={text}: expected <kind>:<phase>:<size> with kind one of {', '.join(FaultKind)}",
                ) from error
        return cls(fault, environment.get(CHECK_ADDRESSES) == "1")

    def fires(self, kind: FaultKind, phase: Phase, size: int) -> bool:
        """Whether this step is to fail."""
        return self.fault == (kind, phase, size)
