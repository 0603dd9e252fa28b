"""The hosts that a download may connect to, as the operator's installer lists them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from graphpod_sources.problem import Problem, Reason

EVERYTHING = ("*",)


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Entries HOST or HOST:PORT, in which `*` stands for any text. Redirects, logins and proxies count, too."""

    entries: tuple[str, ...] = EVERYTHING

    def check(self, host: str, port: int) -> None:
        """Raises `Problem` (HostNotAllowed)."""
        names = host.lower(), f"{host.lower()}:{port}"
        for entry in self.entries:
            pattern = entry.lower().replace("[", "[[]").replace("?", "[?]")
            if any(fnmatchcase(name, pattern) for name in names):
                return
        listed = ", ".join(self.entries)[:500] or "nothing"
        raise Problem(Reason.HostNotAllowed, f"{host}:{port} is not in allowed.sourceHosts: {listed}")


ALL = AllowedHosts()
