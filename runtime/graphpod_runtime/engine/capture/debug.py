"""Switches for tests and debugging, read from the environment.

GRAPHPOD_FAULT=<kind>:<phase>:<size>, or compile:<function>, makes one step of the start fail; several are separated by
commas. The phase is prefill, decode or draft: the steps of a draft model, whose size is sequences. With
host-cache:<what>:<n> the n-th Store or Load of the host tier fails, or the Allocation of its pool. A fault that ends in
@<rank> is of that rank alone. GRAPHPOD_DEBUG names modes in which the engine runs slower and sees more, separated by
commas, too. GRAPHPOD_ACCEPTANCE=<rate> or <rate>:<seed> scripts which drafts of speculative decoding count as right,
for measurements over random weights. The texts are not the model's then.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from graphpod_policy import ExitCode, Phase
from graphpod_runtime.base.errors import CaptureOutOfMemory
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.cache.host_tier import HostCacheFailure
from graphpod_runtime.compiled.cache import Compiled

FAULT = "GRAPHPOD_FAULT"
DEBUG = "GRAPHPOD_DEBUG"
ACCEPTANCE = "GRAPHPOD_ACCEPTANCE"
DRAFT = "draft"
"""What faults and metrics call the passes of a draft model's steps, next to the phases."""


class FaultKind(StrEnum):
    """What is made to fail."""

    Capture = "capture"
    """The captured code raises."""
    CaptureOom = "capture-oom"
    """The pool runs out of memory."""
    SelfCheck = "selfcheck"
    """What a replay returns to the self-check is corrupted."""
    Compile = "compile"
    """A function that was compiled or loaded counts as not compiled."""
    HostCache = "host-cache"
    """A copy of the host tier cannot be launched, or its pool not be allocated."""


class Mode(StrEnum):
    """A debug mode. Graphs are captured and checked in each of them as ever."""

    Eager = "eager"
    """Every pass runs eagerly, counted with the reason ForcedEager: is a wrong answer the graphs' doing at all?"""
    OneBreak = "one-break"
    """The whole forward runs inside one break, whatever the policy: buffers, padding, dispatch and replay are as ever,
    and no operator of the model is captured. Is a wrong answer the capture's doing, or that of what stands around it?
    The model's code runs in replays, so these count as eager passes, too."""
    Poison = "poison"
    """Before every pass whatever it must not read is spoilt (`engine/memory_poisoning.py`)."""
    Addresses = "addresses"
    """Before every replay it is asserted that nothing a graph refers to has moved."""
    Lockstep = "lockstep"
    """No pass is launched before the one before it has landed: is a wrong answer the doing of running ahead?"""
    Seats = "seats"
    """After every pass what the device keeps of sequences is compared with what the host knows of them."""
    Reload = "reload"
    """Every hit in the host tier of the KV cache is loaded, also where computing it takes less time."""


Fault = tuple[FaultKind, str, int] | tuple[FaultKind, Compiled]


class Acceptance(NamedTuple):
    """The share of all places of a text at which a draft counts as right, and what they are drawn by."""

    rate: float
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Switches:
    """What the environment asked for; the default is nothing."""

    faults: frozenset[Fault] = frozenset()
    modes: frozenset[Mode] = frozenset()
    acceptance: Acceptance | None = None

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ, rank: int = 0) -> "Switches":
        """Those of `rank`. StartFailure for a word that is not understood: a fault or mode must not be ignored
        silently."""
        faults = (_fault(text) for text in _words(environment, FAULT))
        return cls(
            frozenset(fault for fault, of in faults if of in (None, rank)),
            frozenset(_mode(text) for text in _words(environment, DEBUG)),
            _acceptance(environment.get(ACCEPTANCE, "")),
        )

    def fires(self, kind: FaultKind, *where: Phase | int | str) -> bool:
        """Whether this step is to fail: at a phase and a size, or at a function being compiled."""
        return (kind, *where) in self.faults

    def failing(self, code: Callable[[Attend], object], phase: str, size: int) -> Callable[[Attend], object]:
        """`code` of a capture, or code that fails when a fault asks for it."""
        for kind, error in ((FaultKind.Capture, RuntimeError), (FaultKind.CaptureOom, CaptureOutOfMemory)):
            if self.fires(kind, phase, size):

                def run(attend: Attend, error: type[Exception] = error) -> None:
                    code(attend)
                    raise error("injected fault")

                return run
        return code


def _words(environment: Mapping[str, str], name: str) -> list[str]:
    text = environment.get(name, "")
    return [word.strip() for word in text.split(",")] if text else []


def _fault(text: str) -> tuple[Fault, int | None]:
    """A fault, and the rank whose alone it is."""
    try:
        fault, _, only = text.partition("@")
        rank = int(only) if "@" in text else None
        kind, *where = fault.split(":")
        if kind == FaultKind.Compile:
            (function,) = where
            return (FaultKind.Compile, Compiled(function)), rank
        phase, size = where
        if kind == FaultKind.HostCache:
            return (FaultKind.HostCache, HostCacheFailure(phase), int(size)), rank
        return (FaultKind(kind), phase if phase == DRAFT else Phase(phase), int(size)), rank
    except ValueError as error:
        raise StartFailure(
            ExitCode.SettingInvalid,
            f"{FAULT}: {text!r}: expected <kind>:<phase>:<size> with kind one of "
            f"{', '.join(kind for kind in FaultKind if kind not in (FaultKind.Compile, FaultKind.HostCache))} and "
            f"phase one of {', '.join((*Phase, DRAFT))}, compile:<function> with function one of "
            f"{', '.join(Compiled)}, or host-cache:<what>:<number> with one of {', '.join(HostCacheFailure)}",
        ) from error


def _mode(text: str) -> Mode:
    try:
        return Mode(text)
    except ValueError as error:
        raise StartFailure(
            ExitCode.SettingInvalid, f"{DEBUG}: {text!r} is no debug mode; choose from {', '.join(Mode)}"
        ) from error


def _acceptance(text: str) -> Acceptance | None:
    if not text:
        return None
    try:
        rate, _, seed = text.partition(":")
        found = Acceptance(float(rate), int(seed or 0))
    except ValueError:
        found = None
    if found is None or not 0 <= found.rate <= 1 or not 0 <= found.seed < 1 << 32:
        raise StartFailure(
            ExitCode.SettingInvalid,
            f"{ACCEPTANCE}: {text!r}: expected <rate> or <rate>:<seed> with a rate from 0 to 1, as 0.8:7",
        )
    return found
