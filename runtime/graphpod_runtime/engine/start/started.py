"""The parts of a Ready engine."""

from dataclasses import dataclass

import torch

from graphpod_policy import Phase
from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.cache.host_tier import HostTier
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.engine.capture.capturer import Capturer
from graphpod_runtime.engine.capture.debug import Mode
from graphpod_runtime.engine.capture.phase_capture import PhaseCapture
from graphpod_runtime.engine.forward.drafting.drafting_seats import DraftingSeats
from graphpod_runtime.engine.forward.graph_choice import Ladder
from graphpod_runtime.engine.forward.passes import Pass
from graphpod_runtime.engine.forward.seats import Seats
from graphpod_runtime.engine.sleep.sleeper import Sleeper
from graphpod_runtime.graphs.captured_graphs import PhaseGraphs
from graphpod_runtime.models.model import Model


@dataclass(slots=True)
class Started:
    """A Ready engine's parts."""

    model: Model
    device: torch.device
    attention: AttentionBackend
    capturer: Capturer
    passes: dict[Phase, Pass]
    seats: Seats | DraftingSeats
    graphs: dict[Phase, PhaseGraphs]
    captured: dict[Phase, PhaseCapture]
    """What they were captured from."""
    ladders: dict[Phase, Ladder]
    modes: frozenset[Mode]
    """Debug modes."""
    cache: CompileCache | None
    """Of what is compiled; None: nothing is."""
    host_tier: HostTier | None
    """Of the KV cache; None: it was not asked for, or has no memory."""
    sleeper: Sleeper | None
    """Of weights and cache; None: they cannot leave or be replaced, because others have a part of them."""
