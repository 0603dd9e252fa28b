"""Over how many ranks the engines of a matrix are spread, in the words of Features."""

from typing import NamedTuple


class Spread(NamedTuple):
    """`pipeline` stages, each of `tensor` ranks, among which `expert` parts of a mixture's experts are divided."""

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1

    @property
    def ranks(self) -> int:
        """Processes of one engine."""
        return self.tensor * self.pipeline

    @property
    def divided(self) -> dict[str, int]:
        """What is: by the field's name, into how many parts."""
        return {name: parts for name, parts in self._asdict().items() if parts > 1}

    def __str__(self) -> str:
        stages = f"{self.pipeline} stages" if self.pipeline > 1 else ""
        ranks = f"{self.tensor} ranks" if self.tensor > 1 or not stages else ""
        experts = f", experts over {self.expert}" if self.expert > 1 else ""
        return " of ".join(word for word in (stages, ranks) if word) + experts


ALONE = Spread()
"""One rank, as the reference has."""
