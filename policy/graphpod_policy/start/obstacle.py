"""What stands against a start, as explain, the operator and the engine say it."""

from dataclasses import dataclass

from graphpod_policy.exit_codes import NEXT_STEP, ExitCode

SUSPENDED = "Suspended"
"""The reason of a service that is to have no pods; no engine ends by it."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing that stands against a start. `reason` is the word of conditions and exit codes, `what` has no next
    step, `step` is that. `code`: the engine ends by it.
    """

    reason: str
    what: str
    step: str
    code: ExitCode | None

    @classmethod
    def of(cls, code: ExitCode, what: str, step: str = "") -> "Obstacle":
        """One that an engine ends by; `step` where it is more exact than the code's."""
        return cls(code.name, what, step or NEXT_STEP.get(code, ""), code)

    def __str__(self) -> str:
        return f"{self.what}; {self.step}" if self.step else self.what
