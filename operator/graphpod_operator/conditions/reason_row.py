"""A row of the table of reasons."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.conditions.types import UPDATES, ConditionType


class Notice(StrEnum):
    """The type of the event that announces a reason."""

    Normal = "Normal"
    Warning = "Warning"


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """One reason.

    `todo` is the next step a message ends with. `stalled`: waiting alone will not help. `consequence`: follows from
    another condition or from mere time, so Ready prefers other reasons. `notice`: an event announces the transition.
    `own_step`: the words of what happened end with "; " and their own next step; `todo` is for those that do not.
    """

    types: tuple[ConditionType, ...]
    status: ConditionStatus
    set_when: str
    cleared_when: str
    todo: str = ""
    stalled: bool = False
    consequence: bool = False
    notice: Notice | None = None
    own_step: bool = False

    @property
    def step(self) -> str:
        """The next step, also where no action is needed."""
        if self.todo:
            return self.todo
        well = {ConditionType.Degraded, *UPDATES}.issuperset(self.types) or self.status is ConditionStatus.true
        waits = not well or self.types == (ConditionType.Reconciling,)
        return f"wait until {self.cleared_when}" if waits else "nothing"


warns = partial(ReasonRow, notice=Notice.Warning)
"""A reason that an event warns of."""
stalls = partial(ReasonRow, notice=Notice.Warning, stalled=True)
"""The same, where waiting alone will not help."""
