"""How long each stage of an engine may go without progress: max(60 s, 3 × the estimate)."""

from graphpod_policy.enums import Phase
from graphpod_policy.plan import Plan

FLOOR_SECONDS = 60.0
FACTOR = 3.0
IMPORT = "Import"
"""The first stage, from the start of a process until it has loaded its libraries."""


def stage_limits(plan: Plan, floor: float = FLOOR_SECONDS) -> dict[str, float]:
    """Seconds without progress by stage. One stage's estimate is its share of the plan's budget: import and load have
    what is not capture's; a size of capture or of the self-check at most what the whole ladder may take, by its part
    of the ladder's rows, and so does a pass of serving. None is below `floor`.
    """
    budget = plan.budget
    sizes = [size for phase in Phase for size in plan.phases[phase].sizes]
    one_size = budget.capture_seconds * max(sizes, default=0) / max(1, sum(sizes))
    start = float(budget.start_seconds - 2 * budget.capture_seconds - budget.check_seconds)
    # A capture runs the pass that it records, so no pass of serving takes longer than one.
    estimates = {IMPORT: start, "Loading": start, "Capturing": one_size, "SelfChecking": one_size, "Ready": one_size}
    return {stage: max(floor, FACTOR * estimate) for stage, estimate in estimates.items()}
