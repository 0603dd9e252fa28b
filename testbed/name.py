import re

from testbed.errors import TestbedError

LONGEST = 24
RESERVED = ("layers", "locks")  # folders next to the testbeds'


def check_name(name: str) -> None:
    """A name becomes part of namespaces, cgroups, folders and socket paths (107 bytes at most)."""
    if name in RESERVED or not re.fullmatch(r"[a-z](-?[a-z0-9])*", name) or len(name) > LONGEST:
        raise TestbedError(
            f"testbed name {name!r}: use 1 to {LONGEST} small letters, digits and single hyphens, a letter first,"
            f" not {', '.join(RESERVED)}"
        )
