"""The address of the machine that has the first rank of an engine."""

from dataclasses import dataclass, field

from graphpod_runtime.base.group_key import checked

LEADER = "GRAPHPOD_LEADER"
"""Environment variable: HOST:PORT of the leader's machine, as `serve --leader` has it."""

MOST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Leader:
    """The machine of the first rank, as all others reach it, and the key that they share; empty: none."""

    host: str
    port: int
    key: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str, ports: int = 1, key: str = "") -> "Leader":
        """HOST:PORT, an IPv6 address in brackets. ValueError for anything else, and where there are no `ports` from its
        own on; KeyInvalid for a `key` that is none."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= MOST_PORT:
            raise ValueError(f"{text!r} is not HOST:PORT")
        if (last := int(port) + ports - 1) > MOST_PORT:
            raise ValueError(f"{text!r} needs ports up to {last}, and {MOST_PORT} is the last")
        return cls(host.removeprefix("[").removesuffix("]"), int(port), checked(key))

    def url(self, after: int) -> str:
        """Of the port so many after its own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port + after}"

    def __str__(self) -> str:
        return self.url(0).removeprefix("tcp://")
