"""Inputs that no pass reads: a process makes them before a pass that will come soon."""

import torch

from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.engine.forward.inputs import inputs_of
from graphpod_runtime.engine.schedule.batch import Chunk, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence


def rehearse(page_size: int, device: torch.device) -> None:
    """Makes inputs that no pass reads. A process that has slept makes its next ones in a multiple of the time: its code
    and objects have left the processor's caches."""
    sequence = Sequence("", [0] * page_size, page_size, 1)
    sequence.pages = [SCRATCH_PAGE]
    inputs_of(PrefillBatch((Chunk(sequence, 0, page_size),)), page_size, device)
