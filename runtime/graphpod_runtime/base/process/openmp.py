"""How long OpenMP's threads spin for the next piece of work before they sleep."""

from collections.abc import MutableMapping

SPIN_COUNT = 10_000
"""About half a millisecond on a CPU of today. libgomp's own 300 000 are tens of milliseconds: alone on its cores a
decode step gains 4 %, but next to two busy programs every barrier of it waits that long for a core that the other
thread's spinning takes away, and a start looks stuck. Never spinning costs a quiet machine a third of its speed."""


def bound_spinning(environment: MutableMapping[str, str]) -> None:
    """Sets GOMP_SPINCOUNT, unless that or OMP_WAIT_POLICY is set. Call it before torch is imported: libgomp reads the
    variable once.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))
