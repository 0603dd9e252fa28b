"""The address of the machine that has the first rank of an engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphpod_policy import ExitCode, FeatureConfig
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.group_key import GROUP_KEY, KeyInvalid, checked

LEADER = "GRAPHPOD_LEADER"
"""Environment variable: HOST:PORT of the leader's machine, as `serve --leader` has it."""

MOST_PORT = 65535
STORE, NOTICES = 1, 2
"""Ports after the leader's own, where workers join: where collectives meet, and where ranks send notices. After those
each rank has one for its orders."""


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
        if not host or not port.isdecimal():
            raise ValueError(f"{text!r} is not HOST:PORT")
        if not 0 < int(port) <= MOST_PORT:
            raise ValueError(f"{text!r} is not HOST:PORT: ports are 1 to {MOST_PORT}")
        if (last := int(port) + ports - 1) > MOST_PORT:
            raise ValueError(f"{text!r} needs ports up to {last}, and {MOST_PORT} is the last")
        return cls(host.removeprefix("[").removesuffix("]"), int(port), checked(key))

    def url(self, after: int) -> str:
        """Of the port so many after its own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port + after}"

    def __str__(self) -> str:
        return self.url(0).removeprefix("tcp://")


def ports_of(ranks: int) -> int:
    """How many are used from the leader's own on."""
    return NOTICES + ranks


def leader_of(features: FeatureConfig, environment: Mapping[str, str]) -> Leader | None:
    """Where the first of several machines lets the others in; None for an engine of one. StartFailure where the
    environment has no such address, or a key that is none.
    """
    if features.nodes == 1:
        return None
    try:
        return Leader.parse(environment.get(LEADER, ""), ports_of(features.ranks), environment.get(GROUP_KEY, ""))
    except KeyInvalid as error:
        raise StartFailure(ExitCode.SettingInvalid, str(error)) from error
    except ValueError as error:
        what = f"an engine of {features.nodes} machines needs the address of the leader's"
        raise StartFailure(ExitCode.SettingInvalid, f"{what}: {error}; set --leader HOST:PORT") from error
