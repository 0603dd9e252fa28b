"""A fork of this process, which has imported the engine, that forks all ranks of an engine for each order: real ranks
over gloo, without the seconds of their imports.

A line in is an order, a line out what the engine has answered.
"""

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from graphpod_policy import EngineConfig, Phase
from tests.forked import Program
from tests.unit.runtime.ranks.asking import Ask, Told, recorded_drafts, tell

WAITING_SECONDS = 5.0
"""Beats of a heart are a second apart."""
ENDING_SECONDS = 5.0
"""In which a rank ends that has met trouble, or is killed."""


class Order(msgspec.Struct, frozen=True):
    """One engine, and what it is asked."""

    config: bytes
    asks: list[Ask]
    faults: str = ""
    modes: str = ""
    sent: int = 0
    """A signal,"""
    to: int = 1
    """to that rank,"""
    at: str = ""
    """in capture or decode;"""
    stopped: int = 0
    """so long after this rank has been stopped that the one behind it waits for it and has said so."""
    silent_seconds: float = 20.0
    """As `others.SILENT_SECONDS`."""
    unwarmed: int = 0
    """A rank that cannot run its code before captures, where the others do, as on GPUs."""
    uncompilable: tuple[int, ...] = ()
    """These ranks have no compiler."""
    as_written: bool = False
    """What is compiled runs as it was written."""
    known: list[list[int]] = []
    """Texts that look-ups find besides a sequence's own, where they begin as it does: each fifth draft is wrong."""
    drafts: bool = False
    """The answer has them."""
    port: int = 0
    """Of the leader, where ranks are those of several machines."""


class Answer(msgspec.Struct, frozen=True):
    """What came of it. `graphs`: by phase its policy, graphs, and verdict of the self-check."""

    told: list[Told] = []
    """Of each ask."""
    graphs: dict[str, tuple[str, int, str]] = {}
    rules: list[str] = []
    because: list[str] = []
    fallbacks: float = 0
    kv_pages: int = 0
    drafted: float = 0
    """Drafts that were verified,"""
    accepted: float = 0
    """and those of them that were right."""
    drafts: list[list[int]] = []
    """Of each sequence of each pass, where the order asks for them."""
    draft_graphs: int = 0
    """Of the steps of what drafts."""
    warnings: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()
    """Of each stage of a pipeline."""
    ranks: list[dict[str, float]] = []
    """What /warmup lists of them."""
    expert_rows: dict[str, float] = {}
    """Counted of each rank."""
    failure: str = ""
    left: int = 0
    """Other ranks that are alive after it."""
    folders: int = 0
    """Temporary ones that are there after it."""
    machines: list[int] = []
    """Exit codes of the workers of other machines."""


class RankForks:
    """Engines of several ranks, one after the other."""

    def __init__(self, forking: Program) -> None:
        self._forking = forking

    def answer(self, config: EngineConfig, *asks: Ask, **more: Any) -> Answer:
        """Of an engine that ends with it."""
        self._forking.stdin.write(msgspec.json.encode(Order(config.canonical(), list(asks), **more)).decode() + "\n")
        self._forking.stdin.flush()
        return msgspec.json.decode(self._forking.stdout.readline(), type=Answer)


@contextmanager
def rank_forks() -> Iterator[RankForks]:
    """For the tests of a module."""
    forking = Program(main, os.environ | {"OMP_NUM_THREADS": "1"})
    yield RankForks(forking)
    forking.close()


class Forked:
    """A Process of a fork."""

    def __init__(self, pid: int) -> None:
        self.pid, self._code = pid, None
        self._asking = threading.Lock()

    def poll(self) -> int | None:
        return self._asked(os.WNOHANG)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        code = self._asked(0)
        assert code is not None, "it has ended"
        return code

    def _asked(self, options: int) -> int | None:
        with self._asking:  # the end of a process is reported once
            if self._code is None:
                pid, status = os.waitpid(self.pid, options)
                self._code = os.waitstatus_to_exitcode(status) if pid else None
            return self._code


def carried_out(order: Order, answered: Callable[[Answer], None]) -> None:
    """In a fork, the first rank; it forks the others."""
    import tempfile

    import torch.distributed as distributed

    from graphpod_policy import config_hash
    from graphpod_runtime.base.failure import StartFailure
    from graphpod_runtime.base.leader import Leader
    from graphpod_runtime.compiled import cache
    from graphpod_runtime.engine.capture.debug import DEBUG, FAULT
    from graphpod_runtime.engine.forward.drafting import proposer
    from graphpod_runtime.engine.ranks import others, process, worker
    from graphpod_runtime.engine.ranks.meeting import Meeting
    from graphpod_runtime.engine.ranks.others import Others, RankLost
    from graphpod_runtime.engine.ranks.roster import Roster
    from graphpod_runtime.engine.ranks.start import leading, let_others_leave, runner_of
    from graphpod_runtime.graphs.segments.cpu import RecorderPool
    from graphpod_runtime.wire.messages import Fatal
    from graphpod_runtime.wire.report import Report, State
    from tests.unit.runtime.conftest import run_as_written

    os.environ[FAULT], os.environ[DEBUG] = order.faults, order.modes
    config = EngineConfig.parse(order.config)
    others.SILENT_SECONDS = order.silent_seconds
    forks: list[Forked] = []

    def send(at: str) -> None:
        if at != order.at:
            return
        pid = forks[order.to - 1].pid
        if order.stopped:
            os.kill(forks[order.stopped - 1].pid, signal.SIGSTOP)
            threading.Timer(WAITING_SECONDS, os.kill, (pid, order.sent)).start()
        else:
            os.kill(pid, order.sent)

    def left(within: float = 0.0) -> int:
        """Other ranks that are alive then. One speaks before it ends, and the pass that misses it may fail first."""
        until = time.monotonic() + within
        while (alive := sum(fork.poll() is None for fork in forks)) and time.monotonic() < until:
            time.sleep(0.02)
        return alive

    once = threading.Lock()

    def ended(fatal: Fatal) -> NoReturn:
        once.acquire()  # the first of two threads that see it
        answered(Answer(failure=f"{fatal.reason}: {fatal.message}", left=left(ENDING_SECONDS)))
        os._exit(0)

    def start(meeting: Meeting, rank: int) -> Forked:
        if pid := os.fork():
            forks.append(Forked(pid))
            return forks[-1]
        if rank == order.unwarmed:
            RecorderPool.warm = out_of_memory  # type: ignore[assignment,method-assign]
        os._exit(process.run(config, meeting, rank, process.following))

    def compiled(*arguments: object) -> None:
        # Of the others nothing is run: all ranks hear of these first.
        if distributed.get_rank() in order.uncompilable:
            raise KeyError("no working C++ compiler")

    def out_of_memory(pool: RecorderPool, code: object) -> NoReturn:
        raise MemoryError("before the first collective")

    if order.uncompilable:
        cache.CompileCache._run = compiled  # type: ignore[assignment,method-assign]
    if order.known:
        proposer.looked_up = partial(_known, order.known)  # type: ignore[assignment]
    if order.as_written:
        cache.CompileCache._run = run_as_written  # type: ignore[method-assign]
    if order.unwarmed:
        RecorderPool.warm = lambda pool, code: code()  # type: ignore[assignment,method-assign,misc]

    def folders() -> list[Path]:
        return list(Path(os.environ["TMPDIR"]).glob("graphpod-ranks-*"))

    def work(node: int) -> NoReturn:
        """A fork that is another machine; it forks its ranks."""
        folder = Path(tempfile.mkdtemp(prefix=f"graphpod-machine-{node}-"))

        def start(meeting: Meeting, rank: int) -> Forked:
            if pid := os.fork():
                return Forked(pid)
            os._exit(process.run(config, meeting, rank, process.following))

        assert leader is not None
        fatal = worker.work(config, folder, leader, node, start)
        os._exit(0 if fatal is None else fatal.code)

    def report(report: Report) -> None:
        if report.state is State.Capturing:
            send("capture")

    nodes = config.features.nodes
    leader = Leader("127.0.0.1", order.port) if nodes > 1 else None
    machines = [Forked(pid) if (pid := os.fork()) else work(node) for node in range(1, nodes)]
    if leader is None:
        runner = runner_of(config, report, start, ended)
    else:
        roster = Roster(leader, nodes, config.features.ranks, config_hash(config.canonical()))
        roster.wait(lambda missing: None, 0.1)
        folder = Path(tempfile.mkdtemp(prefix="graphpod-ranks-"))
        runner = leading(config, report, None, Others(config, folder, start, temporary=True, roster=roster))
    try:
        runner.start()
        send("decode")
        drafts = recorded_drafts(runner) if order.drafts else []
        told = [tell(runner, ask) for ask in order.asks]
    except StartFailure as failure:
        let_others_leave(runner)
        answered(Answer(failure=str(failure), left=left(), folders=len(folders())))
        return
    except RankLost as lost:
        ended(lost.fatal)
    made, counted = runner.report, runner.counters.snapshot()

    def total(name: str) -> float:
        return sum(sample.value for sample in counted if sample.name == f"graphpod_{name}_total")

    answer = Answer(
        told,
        {
            phase.value: (one.effective.value, one.captured, one.self_check.value)
            for phase, one in ((phase, made.phases[phase]) for phase in Phase)
        },
        [decision.rule for decision in made.decisions],
        [decision.because for decision in made.decisions],
        total("graph_fallbacks"),
        made.kv_pages,
        total("speculation_proposed_tokens"),
        total("speculation_accepted_tokens"),
        drafts,
        made.drafts.graphs if made.drafts is not None else 0,
        made.warnings,
        made.pipeline_layers,
        made.as_dict()["ranks"],
        {one.labels["rank"]: one.value for one in counted if one.name == "graphpod_expert_rows_total"},
    )
    del runner
    gc.collect()  # the runner leaves the other ranks
    machine_codes = [machine.wait() for machine in machines]
    answered(msgspec.structs.replace(answer, folders=len(folders()), machines=machine_codes))


def _known(known: list[list[int]], texts: Any, lengths: Any, count: int) -> Any:
    """Found for `texts`, whose first `lengths` tokens count."""
    import torch

    from graphpod_runtime.kernels.rows.prompt_lookup import Found

    drafts, found = torch.zeros(len(texts), count, dtype=torch.int64), torch.zeros(len(texts), dtype=torch.bool)
    for row, (text, length) in enumerate(zip(texts.tolist(), lengths.tolist(), strict=True)):
        for one in known:
            if one[:length] == text[:length]:
                found[row] = True
                for at, token in enumerate(one[length : length + count]):
                    drafts[row, at] = token + ((length + at) % 5 == 0)
    return Found(drafts, found)


def _answered(writing: int, answer: Answer) -> None:
    os.write(writing, msgspec.json.encode(answer))


def main() -> int:
    """Forks until its input ends."""
    import tempfile

    import torch._dynamo  # noqa: F401 - for traces of Piecewise

    from graphpod_runtime.engine.ranks import leading, start  # noqa: F401 - with all that forks need

    gc.freeze()  # or each fork walks all of torch as it ends, which copies it
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        reading, writing = os.pipe()
        if not os.fork():
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
            with tempfile.TemporaryDirectory() as folder:
                os.environ["TMPDIR"] = tempfile.tempdir = folder
                carried_out(order, partial(_answered, writing))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as content:
            answer = content.read()
        os.wait()
        sys.stdout.buffer.write((answer or b'{"failure": "the first rank has ended"}') + b"\n")
        sys.stdout.buffer.flush()
    return 0
