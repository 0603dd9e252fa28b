"""What a user asks of a stub engine, in the environment of the process or in the annotations of a simulated pod."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from stubs.engine.fault import FaultError


@dataclass(frozen=True, slots=True)
class StartSettings:
    """What a user asks of a stub engine. An undisturbed start takes `seconds`, spread log-normally by `sigma` from the
    pod's uid; after SIGTERM it serves for `drain` seconds more.
    """

    fault: str = ""
    seconds: float = 2.0
    sigma: float = 0.0
    drain: float = 0.5

    @classmethod
    def of(cls, words: Mapping[str, str], spelled: Mapping[str, str]) -> StartSettings:
        """From an environment or from annotations; `spelled` has the key of each word. Raises FaultError."""
        found = {word: words[key] for word, key in spelled.items() if key in words}
        numbers = {word: _number(spelled[word], text) for word, text in found.items() if word != "fault"}
        return cls(found.get("fault", ""), **numbers)

    def warmup_seconds(self, seed: str) -> float:
        """Seconds of this pod's undisturbed start; `seconds` is the median."""
        return self.seconds * random.Random(seed).lognormvariate(0.0, self.sigma) if self.sigma else self.seconds


WORDS = ("fault", "seconds", "sigma", "drain")
ENVIRONMENT = dict(zip(WORDS, (f"GRAPHPOD_STUB_{w}" for w in ("FAULT", "SECONDS", "SIGMA", "DRAIN")), strict=True))
ANNOTATIONS = {
    "fault": "stub.graphpod.dev/fault",
    "seconds": "stub.graphpod.dev/warmup-seconds",
    "sigma": "stub.graphpod.dev/warmup-sigma",
    "drain": "stub.graphpod.dev/drain-seconds",
}


def _number(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e6:
        raise FaultError(f"{key}: {text!r} is no number of seconds or spread from 0")
    return number
