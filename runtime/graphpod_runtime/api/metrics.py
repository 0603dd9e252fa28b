"""What an engine of the library has counted."""

from dataclasses import dataclass

from graphpod_policy.metrics import BY_NAME
from graphpod_runtime.wire.counters import Sample


@dataclass(frozen=True, slots=True)
class Metrics:
    """Every series at one moment, cumulative since the start. docs/reference/metrics.md explains each."""

    samples: tuple[Sample, ...]

    def value(self, name: str, **labels: str) -> float:
        """The sum over the series of `name` whose labels include `labels`; of a histogram the sum of observations.
        KeyError for a name that the engine does not have.
        """
        wanted = BY_NAME[name].name, labels.items()
        return sum(one.value for one in self.samples if one.name == wanted[0] and wanted[1] <= one.labels.items())
