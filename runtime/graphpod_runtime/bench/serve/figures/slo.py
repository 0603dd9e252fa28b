"""A service level objective: limits that a good request stays within."""

import re

import msgspec

LIMITS = ("ttft", "tpot", "e2e")
_LIMIT = re.compile(r"(\w+)=(\d+(?:\.\d+)?)(ms|s)")


class Slo(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Seconds, each None without a limit."""

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    def holds(self, ttft: float | None, tpot: float | None, e2e: float) -> bool:
        """Whether an answer is good. One without a first token is not; one of a single token has no TPOT to miss."""
        if ttft is None:
            return False
        pairs = ((ttft, self.ttft), (tpot, self.tpot), (e2e, self.e2e))
        return all(limit is None or value is None or value <= limit for value, limit in pairs)

    def __str__(self) -> str:
        """As `slo_of` reads it."""
        given = ((name, getattr(self, name)) for name in LIMITS)
        return ",".join(f"{name}={1e3 * limit:g}ms" for name, limit in given if limit is not None)


def slo_of(word: str) -> Slo:
    """Reads `ttft=200ms,tpot=20ms`. ValueError says which part is wrong."""
    limits: dict[str, float] = {}
    for part in word.split(","):
        found = _LIMIT.fullmatch(part)
        if found is None or found[1] not in LIMITS:
            raise ValueError(f"{part!r} is no limit; write one of {', '.join(LIMITS)} with ms or s, as in ttft=200ms")
        if found[1] in limits:
            raise ValueError(f"{found[1]} has two limits in {word!r}")
        limits[found[1]] = float(found[2]) * (1e-3 if found[3] == "ms" else 1)
    return Slo(**limits)
