"""The end of the demo: what runs and why, an answer, and the counters it moved."""

from demo.answer import QUESTION, ask
from demo.counters import Counters, counters, exposition, serving_pod, table
from demo.ground import Ground
from demo.objects import Manifest, evidence, wait
from demo.policy import describe
from demo.service import NAME, NAMESPACE

COUNTERS_LIMIT = 15.0  # s; the engine hands its counters over every second or so


def show(ground: Ground, found: Manifest) -> None:
    """Print it. Raises GaveUp when there is no answer, or when the answer moved no counter."""
    print(f"\n$ kubectl -n {NAMESPACE} get gisvc\n" + ground.kubectl("get", "gisvc", "-n", NAMESPACE).rstrip())
    print("\nResolved policy\n" + describe(found))
    pod = serving_pod(ground)
    before = after = counters(exposition(ground, pod))
    with ground.reach(NAMESPACE, NAME) as base:
        print(f"\nquestion: {QUESTION}\nanswer: {ask(base)}")

    def moved() -> bool:
        nonlocal after
        after = counters(exposition(ground, pod))
        return _passes(after) > _passes(before)

    wait("counters of the engine moved", moved, COUNTERS_LIMIT, lambda: evidence(ground, NAMESPACE, f"pod/{pod}"))
    print(f"\nGraph counters of pod {pod}\n" + table(before, after))


def _passes(reading: Counters) -> float:
    return sum(reading.values())
