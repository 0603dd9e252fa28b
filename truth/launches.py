"""On a GPU: how many graphs really were launched, by the profiler's count."""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

from graphpod_policy import Device

LAUNCH = "cudaGraphLaunch"


def launched(device: Device, work: Callable[[], None]) -> int | None:
    """Does `work`; the graphs that it launched, None where there are none to count (the recorder replays in Python)."""
    if device is Device.Cpu:
        work()
        return None
    with profile(activities=[ProfilerActivity.CPU]) as found:
        work()
    return sum(event.count for event in found.key_averages() if event.key == LAUNCH)
