"""One cell of the matrix: what a policy did in a scenario."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from graphpod_policy import CompileMode, Policy
from truth.axes import Variant
from truth.scenarios import Name


class Outcome(StrEnum):
    """There is no fourth one: a cell is never blank."""

    Passed = "passed"
    Failed = "failed"
    Refused = "refused"
    """By the rule that `because` names. A gate refuses single passes: they ran eagerly, and their tokens were right."""


class Key(NamedTuple):
    """Where a cell is."""

    subject: str
    variant: Variant
    scenario: Name


@dataclass(frozen=True, slots=True)
class Cell:
    """`tokens` were compared, `near_ties` of them differ where eager was not sure; `worst` is the largest difference of
    the `scored` log-probabilities, which must be less than `allowed` (0: not compared); `because` a
    rule (refused) or what went wrong (failed); `met`: where a drawn fault was, and what was served then.
    """

    subject: str
    variant: Variant
    scenario: Name
    outcome: Outcome
    because: str = ""
    tokens: int = 0
    near_ties: int = 0
    scored: int = 0
    worst: float = 0.0
    allowed: float = 0.0
    seconds: float = 0.0
    met: str = ""

    @property
    def key(self) -> Key:
        """Where it is."""
        return Key(self.subject, self.variant, self.scenario)

    def __str__(self) -> str:
        return f"{self.subject} · {self.variant} · {self.scenario}" + (f" ({self.met})" if self.met else "")

    @property
    def summary(self) -> str:
        """The outcome with its figures."""
        figures = [f"{self.tokens} tokens"] if self.tokens else []
        figures += [f"{self.near_ties} near-ties"] if self.near_ties else []
        figures += [f"{self.scored} log-probabilities within {self.worst:.1g}"] if self.scored else []
        figures += [f"{self.allowed:.2g} allowed"] if self.allowed and (self.scored or self.near_ties) else []
        because = f" ({self.because})" if self.because else ""
        return f"{self.outcome}{because}" + (f": {', '.join(figures)}" if figures else "")

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        plain = asdict(self) | {"seconds": round(self.seconds, 3)}
        return plain if self.met else {name: value for name, value in plain.items() if name != "met"}

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Cell":
        """From `as_dict`."""
        variant = raw["variant"]
        return cls(
            **raw
            | {
                "variant": Variant(
                    Policy(variant["prefill"]), Policy(variant["decode"]), CompileMode(variant["compile"])
                ),
                "scenario": Name(raw["scenario"]),
                "outcome": Outcome(raw["outcome"]),
            }
        )
