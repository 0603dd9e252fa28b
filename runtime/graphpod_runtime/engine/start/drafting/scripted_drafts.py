"""Drafts that count as right by a script, where a debug switch asks for it."""

from graphpod_policy import ExitCode
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.capture.debug import ACCEPTANCE, Acceptance
from graphpod_runtime.engine.forward.drafting.drafting_seats import DraftingSeats
from graphpod_runtime.engine.forward.drafting.tree_seats import TreeSeats
from graphpod_runtime.engine.start.device_state import DeviceState
from graphpod_runtime.kernels.rows.scripted_acceptance import ScriptedAcceptance


def script(asked: Acceptance | None, device_state: DeviceState) -> str | None:
    """Drafts are right as `asked`; a warning about it. StartFailure for an engine without drafts."""
    if asked is None:
        return None
    seats = device_state.seats
    if not isinstance(seats, DraftingSeats):
        words = f"{ACCEPTANCE}: the service has no speculative decoding; unset it, or set spec.engine.speculative"
        raise StartFailure(ExitCode.SettingInvalid, words)
    if isinstance(seats, TreeSeats):
        words = f"{ACCEPTANCE}: its script is of chains; unset it, or set spec.engine.speculative.topk: 1"
        raise StartFailure(ExitCode.SettingInvalid, words)
    seats.script = ScriptedAcceptance(asked.rate, asked.seed, device_state.device)
    return f"{ACCEPTANCE}: a share of {asked.rate:g} of all drafts counts as right: answers are not the model's"
