"""How the start of a stub engine goes, known beforehand. Pure: the same settings and configuration give the same story.

The story follows the real start (weights, prefill captured, decode captured to measure, KV cache, decode captured,
self-check) and its answers to failures, but nothing is loaded or captured: only time passes. The process and the
simulated pods read the same story, so that what an admin port says and what a kubelet would see agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from stubs.engine.fault import Fault, FaultError, Kind, parse
from stubs.engine.story import NAMES, PAGE_BYTES, End, PhaseScene, Scene, Story

SHARES = {
    "Import": 0.05,
    "Load": 0.18,
    "Buffers": 0.02,
    "Compile": 0.0,  # of engines that compile, which the stub does not
    "PrefillCapture": 0.35,
    "DecodeMeasure": 0.1,
    "KvSizing": 0.05,
    "DecodeCapture": 0.1,
    "SelfCheck": 0.15,
}
"""Part of an undisturbed start that each stage takes; a ladder's sizes share their stage evenly."""

WEAKER = {
    "prefill": {"Breakable": "Piecewise", "Piecewise": "Disabled"},
    "decode": {"Full": "Breakable", "Breakable": "Disabled"},
}
AUTO = {"maxModelLen": 2048, "maxBatch": 8}
"""What a stub derives where the configuration says Auto (null), as an engine on a CPU does."""
SEGMENTS = {"Full": 1, "Breakable": 31, "Piecewise": 31}  # of a model with 30 layers
STUCK_SECONDS = 60.0
SILENT_SECONDS = 20.0  # of a rank's heart
CONFIG_INVALID, SETTING_INVALID = 10, 28
REPORTED = range(10, 15)
"""Ends that the engine reports before it goes; of the others it knows nothing."""
RULES = {Kind.Capture: ("CaptureFailed", 12), Kind.Oom: ("CaptureOutOfMemory", 13)}
RULES |= {Kind.SelfCheck: ("SelfCheckFailed", 14)}


def tell(config: bytes, fault: str, seconds: float) -> Story:
    """The story of an engine with this engine.json; `seconds`: what its start takes undisturbed.

    A configuration that cannot be read is a story too: it ends at once with exit code 10; so is an unknown fault, with
    28 as the real engine's.
    """
    try:
        read = json.loads(config)
        del read["model"]["name"]
        return _shared_story(json.dumps(read, sort_keys=True), fault, seconds)
    except FaultError as error:
        return Story.refused(SETTING_INVALID, str(error))
    except (KeyError, TypeError, ValueError) as error:
        return Story.refused(CONFIG_INVALID, f"engine.json: {error!r}")


@lru_cache(maxsize=4096)
def _shared_story(config: str, fault: str, seconds: float) -> Story:
    """Thousands of services differ in their names alone: they share one story."""
    return _Start(json.loads(config), parse(fault), seconds).story()


def _limits(config: Mapping[str, Any]) -> dict[str, Any]:
    auto = [name for name in AUTO if config[name] is None]
    return {name: config[name] or value for name, value in AUTO.items()} | {"auto": auto}


def _drafts(config: Mapping[str, Any]) -> dict[str, Any] | None:
    features = config.get("features", {})
    if (method := features.get("speculative")) is None:
        return None
    given = features.get("speculativeMaxBatch")
    auto = ["maxBatch"] if given is None else []
    return {"method": method, "steps": features.get("speculativeSteps", 3), "maxBatch": given or 8, "auto": auto}


def _host_cache(config: Mapping[str, Any]) -> dict[str, Any] | None:
    if (size := config.get("features", {}).get("hostCacheBytes")) is None:
        return None
    pages = size // PAGE_BYTES
    return {"bytes": pages * PAGE_BYTES, "tokens": pages * config.get("pageSize", 16)}


def _ranks(config: Mapping[str, Any]) -> int:
    return int(config.get("features", {}).get("tensor", 1))


class _Ended(Exception):
    def __init__(self, code: int, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.code, self.message, self.after = code, message, after


class _Halted(Exception):
    """It goes on for ever as it is."""


@dataclass
class _Start:
    """One start, played with a clock of its own."""

    config: dict[str, Any]
    faults: tuple[Fault, ...]
    seconds: float
    now: float = 0.0
    state: str = "Loading"
    scenes: list[Scene] = field(default_factory=list)
    decisions: list[Mapping[str, str]] = field(default_factory=list)
    stages: list[tuple[str, float]] = field(default_factory=list)
    ladders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    phases: dict[str, PhaseScene] = field(default_factory=dict)
    halved: set[str] = field(default_factory=set)
    pages: int = 0
    ready_at: float | None = None
    silent_at: float | None = None

    def story(self) -> Story:
        graph = self.config["graph"]
        for name in ("prefill", "decode"):
            plan = graph[name]
            self.ladders[name] = tuple(plan["sizes"])
            self.phases[name] = PhaseScene(plan["requested"], plan["planned"], plan["planned"], len(plan["sizes"]))
        self._refuse_what_never_happens()
        end = None
        try:
            self._play()
        except _Halted:
            pass
        except _Ended as ended:
            self.now += ended.after
            end = End(self.now, ended.code, ended.message)
            if end.code in REPORTED:
                self.state = "Failed"
                self._scene((NAMES[end.code], end.message))
        flap = next((one.seconds for one in self._all(Kind.Flap)), 0.0)
        if flap and self.ready_at is not None and (end is not None or self.silent_at is not None):
            raise FaultError("an engine that flaps does so for ever: it can neither end nor fall silent as well")
        device = self.config.get("features", {}).get("device", "cpu")
        return Story(
            scenes=tuple(self.scenes),
            backend="Recorder" if device == "cpu" else "CudaGraph",
            page_size=self.config["pageSize"],
            ready_at=self.ready_at,
            end=end,
            limits=_limits(self.config),
            drafts=_drafts(self.config),
            host_cache=_host_cache(self.config),
            silent_at=self.silent_at,
            mute=any(one.at == "warmup" for one in self._all(Kind.Silent)),
            lie=next((one.at for one in self._all(Kind.Lying)), ""),
            answer=next((one.at for one in self._all(Kind.Answer)), ""),
            flap=flap,
        )

    def _refuse_what_never_happens(self) -> None:
        for one in self.faults:
            ladder = ", ".join(map(str, self.ladders[one.phase])) if one.size else ""
            # a phase that is Disabled captures nothing, so that nothing goes wrong there
            if ladder and one.size not in self.ladders[one.phase]:
                raise FaultError(f"fault {str(one)!r}: {one.phase} has no size {one.size}, its ladder is {ladder}")

    def _play(self) -> None:
        self._reach("Loading")
        with self._stage("Import"):
            self._pass("Import")
        with self._stage("Load"):
            self._pass("Load")
            if self._all(Kind.Load):
                raise _Ended(11, f"{self.config['model']['path']} holds no *.safetensors; correct spec.model.uri")
        with self._stage("Buffers"):
            self._pass("Buffers")
        self._reach("Capturing")
        with self._stage("PrefillCapture"):
            self._capture("prefill", "PrefillCapture")
        with self._stage("DecodeMeasure"):
            self._capture("decode", "DecodeMeasure")
            self.phases["decode"] = replace(self.phases["decode"], captures=(), segments=0, seconds=0.0, failed=0)
        with self._stage("KvSizing"):
            self._pass("KvSizing")
            limits = _limits(self.config)
            self.pages = limits["maxBatch"] * -(-limits["maxModelLen"] // self.config["pageSize"])
        with self._stage("DecodeCapture"):
            self._capture("decode", "DecodeCapture")
        self._reach("SelfChecking")
        with self._stage("SelfCheck"):
            for name in self.phases:
                self._check(name)
        self.ready_at = self.now
        self._reach("Ready")

    def _reach(self, state: str) -> None:
        self.state = state
        self._scene()
        for one in self._all(Kind.Silent):
            if one.at == state:
                self.silent_at = self.now + one.seconds
        for one in self.faults:
            if one.at == state:
                self._befall(one)

    def _befall(self, one: Fault) -> None:
        match one.kind:
            case Kind.Dead if (ranks := _ranks(self.config)) > 1:
                what = f"rank 1 of {ranks} has ended at {self.state}: signal SIGKILL"
                raise _Ended(31, what, one.seconds)
            case Kind.Dead:
                raise _Ended(15, "the engine process ended without a word", one.seconds)
            case Kind.Killed:
                raise _Ended(137, "out of memory", one.seconds)
            case Kind.Stuck if (ranks := _ranks(self.config)) > 1:
                silent = one.seconds or SILENT_SECONDS
                what = f"rank 1 of {ranks} stands still at {self.state}: no heartbeat for {silent:.0f} s"
                raise _Ended(32, what, silent)
            case Kind.Stuck:
                limit = one.seconds or STUCK_SECONDS
                raise _Ended(16, f"no progress at {self.state} for {limit:g} s, the limit is {limit:g} s", limit)

    def _capture(self, name: str, stage: str) -> None:
        """Captures a ladder by its planned policy, or a weaker one, or none."""
        while self.ladders[name]:
            began = self.now
            ladder = self.ladders[name]
            step = SHARES[stage] * self.seconds / len(ladder)
            self.phases[name] = replace(self.phases[name], captures=(), failed=0, seconds=0.0)
            failed = None
            for size in sorted(ladder, reverse=True):
                took = step + sum(one.seconds for one in self._all(Kind.Slow, name, size))
                self.now += took
                failed = next(iter(self._all(Kind.Oom, name, size) + self._all(Kind.Capture, name, size)), None)
                if failed is not None:
                    break
                captures = (*self.phases[name].captures, (size, took))
                self.phases[name] = replace(self.phases[name], captures=captures)
                self._scene()
                if name == "prefill" and 2 * len(captures) >= len(ladder):
                    self._lie_ready()
            if failed is not None:
                self._degrade(name, failed)
                continue
            phase = self.phases[name]
            self.phases[name] = replace(
                phase,
                failed=phase.sizes - len(phase.captures),
                segments=SEGMENTS[phase.effective],
                seconds=self.now - began,
            )
            return

    def _lie_ready(self) -> None:
        if any(one.at == "ready" for one in self._all(Kind.Lying)):
            self.ready_at = self.now
            raise _Halted

    def _degrade(self, name: str, fault: Fault) -> None:
        """A ladder half as long once if memory ran out, else a weaker policy, else the end."""
        rule, code = RULES[fault.kind]
        phase, ladder = self.phases[name], self.ladders[name]
        what = f"{name} size {fault.size}: injected fault {fault}"
        halve = fault.kind is Kind.Oom and not fault.fatal and name not in self.halved and len(ladder) > 1
        if halve:
            self.halved.add(name)
            rule, outcome, self.ladders[name] = "LadderMemory", "Adjusted", ladder[: len(ladder) // 2]
        elif fault.fatal or self.config["graph"].get("onCaptureFailure") == "Fail":
            raise _Ended(code, f"{what}; set spec.graph.onCaptureFailure: Degrade to run a weaker policy")
        else:
            outcome = "Degraded"
            phase = replace(phase, effective=WEAKER[name][phase.effective])
            if phase.effective == "Disabled":
                self.ladders[name] = ()
        self.phases[name] = replace(phase, captures=(), segments=0, seconds=0.0, failed=phase.sizes)
        self.decisions.append(
            {
                "rule": rule,
                "phase": name,
                "stage": "Engine",
                "outcome": outcome,
                "because": what,
                "hint": "a stub's fault",
            }
        )
        self._scene()

    def _check(self, name: str) -> None:
        while self.ladders[name]:
            self.now += SHARES["SelfCheck"] * self.seconds / 2
            broken = next((one for one in self._all(Kind.SelfCheck, name) if one.size in self.ladders[name]), None)
            passed = broken is None
            self.phases[name] = replace(self.phases[name], self_check="Passed" if passed else "Failed")
            if broken is None:
                self._scene()
                return
            self._degrade(name, broken)
            self._capture(name, "DecodeCapture")

    def _all(self, kind: Kind, phase: str = "", size: int = 0) -> tuple[Fault, ...]:
        return tuple(
            one for one in self.faults if one.kind is kind and phase in ("", one.phase) and size in (0, one.size)
        )

    def _pass(self, stage: str) -> None:
        """Time passes."""
        self.now += SHARES[stage] * self.seconds

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Notes how long it took."""
        began = self.now
        yield
        self.stages.append((name, self.now - began))
        self._scene()

    def _scene(self, failure: tuple[str, str] | None = None) -> None:
        """What is true now; a scene of the same instant is replaced."""
        if self.scenes and self.scenes[-1].at == self.now:
            self.scenes.pop()
        self.scenes.append(
            Scene(
                *(self.now, self.state, dict(self.phases), tuple(self.decisions), tuple(self.stages), self.pages),
                failure,
            )
        )
