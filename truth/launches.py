"""On a GPU: how many graphs really were launched, by the profiler's count."""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

LAUNCH = "cudaGraphLaunch"


def launched(work: Callable[[], None]) -> int:
    """Does `work`; the graphs that it launched."""
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as found:
        work()
    return sum(event.count for event in found.key_averages() if event.key == LAUNCH)
