"""One run: fill, quiet, restart, restart with a late list, failover; and, alone, what the operator itself has to do.
A line a second while something is waited for.
"""

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.operator_scale import services
from benchmarks.operator_scale.bed import CHILDREN, Bed, Usage, laid
from benchmarks.operator_scale.services import Progress
from stubs.faults.fault import Slow
from stubs.kubecall import Verb, Which
from stubs.proxy import Proxy
from tests.api.operator.process import Operator
from tests.audit import Trail

FILL_LIMIT = 1800.0  # s
IDLE_LIMIT = 600.0  # s
SETTLED_SECONDS = 10.0  # without a write: details of a status may be held back for 5
QUIET_SECONDS = 30.0
LATE_LIST = "deployments"
LATE_SECONDS = 10.0
LOOK_SECONDS = 0.2  # between two looks at an operator, which each cost it some milliseconds once it leads
STILL_SECONDS = 2.0  # without a reconcile, and nothing waits: consistent
BAR = 24


@dataclass(frozen=True)
class Moment:
    """One second of the fill."""

    at: float  # s since the first create
    created: int
    children: int
    ready: int
    rss: int
    cpu: float


@dataclass(frozen=True)
class Applied:
    """Services that were planned and applied while no controller made anything of them: API server and operator alone.
    Seconds are wall-clock unless they say CPU; memory in bytes.
    """

    services: int
    applied_seconds: float  # first create → the operator's last child
    applied_cpu: float  # CPU s of the operator
    applied_peak: int  # the most that the operator ever held
    cpu: dict[str, float]  # CPU s of each component


@dataclass(frozen=True)
class Filled:
    """Services that were made until all were Ready, while the whole cluster works on them, in the same units."""

    services: int
    fill_seconds: float  # first create → the operator's last child
    ready_seconds: float  # first create → the last service is Ready
    ready_p50: float  # create → Ready of one service
    ready_p99: float
    children: int
    writes_most: int  # by the operator for one service, until it is Ready and all is quiet; Events included
    writes_mean: float
    fill_cpu: float  # CPU s of the operator until the last service was Ready
    rss_begin: int  # before the first service
    rss_ready: int  # after the last is Ready and the operator idle
    rss_peak: int
    cpu: dict[str, float]  # CPU s of each component until the last service was Ready
    moments: tuple[Moment, ...]


@dataclass(frozen=True)
class Run(Filled):
    """What one run found: the fill, and what came after it."""

    quiet_writes: int  # in QUIET_SECONDS
    restart_seconds: float  # process start → nothing left to do
    restart_writes: int
    restart_cpu: float
    restart_peak: int
    late_list_seconds: float  # the same with one list LATE_SECONDS late
    late_list_writes: int
    failover_seconds: float  # kill -9 of the leader → first child of a service made at that moment
    failover_settled: float  # … → the next leader has nothing left to do
    failover_writes: int  # for other services


def applied(count: int, name: str, folder: Path, api_server: tuple[str, ...] = ()) -> Applied:
    """What the operator itself has to do, on a fresh cluster; `api_server` are more flags for the API server."""
    with laid(name, folder, api_server) as bed, bed.held_still():
        operator = bed.operator("alone")
        waited("the operator leads", operator.idle)
        begin, components, mark = Usage.of(pid(operator)), bed.cpu(), bed.mark()
        progress, _ = asyncio.run(filled(bed, operator, names(count), lambda moment: moment.children // len(CHILDREN)))
        end, cpu = Usage.of(pid(operator)), bed.cpu()
        made = children(bed.writes(mark))
        assert len({one.thing for one in made}) == count * len(CHILDREN), "a child was made twice"
        return Applied(
            services=count,
            applied_seconds=made[-1].at - min(progress.created.values()),
            applied_cpu=end.cpu - begin.cpu,
            applied_peak=end.peak,
            cpu={part: round(cpu[part] - components[part], 2) for part in cpu},
        )


def run(count: int, name: str, folder: Path, quiet_seconds: float = QUIET_SECONDS) -> Run:
    """Everything, on a fresh cluster."""
    with laid(name, folder) as bed:
        first = bed.operator("first")
        waited("the operator leads", first.idle)
        filling = fill(bed, first, count)
        print(f"  quiet for {quiet_seconds:.0f} s …", flush=True)
        mark = bed.mark()
        time.sleep(quiet_seconds)
        quiet_writes = len(bed.writes(mark))
        assert first.stop() == 0, first.tail()
        print("  restart …", flush=True)
        restart, restart_writes, again = restarted(bed, "second")
        print(f"  restart, the list of {LATE_LIST} {LATE_SECONDS:.0f} s late …", flush=True)
        with Proxy(bed.cluster.kubeconfig).serving() as proxy:
            proxy.add(Slow(delay=LATE_SECONDS), Which(frozenset({Verb.LIST}), resource=LATE_LIST))
            late, late_writes, _ = restarted(bed, "late", proxy)
        print("  failover …", flush=True)
        failover = failed_over(bed)
        return Run(
            **vars(filling),
            quiet_writes=quiet_writes,
            restart_seconds=restart,
            restart_writes=restart_writes,
            restart_cpu=again.cpu,
            restart_peak=again.peak,
            late_list_seconds=late,
            late_list_writes=late_writes,
            failover_seconds=failover[0],
            failover_settled=failover[1],
            failover_writes=failover[2],
        )


def fill(bed: Bed, operator: Operator, count: int) -> Filled:
    """Services until all of them are Ready and all is still."""
    begin, components, mark = Usage.of(pid(operator)), bed.cpu(), bed.mark()
    progress, moments = asyncio.run(filled(bed, operator, names(count), lambda moment: moment.ready))
    full, cpu = Usage.of(pid(operator)), bed.cpu()
    settled(bed, operator)
    filling = bed.writes(mark)
    made = children(filling)
    writes = Counter(one.name.partition("-")[0] for one in filling if one.name) + bed.events()
    after = Usage.of(pid(operator))
    began, waits = min(progress.created.values()), progress.waits()
    return Filled(
        services=count,
        fill_seconds=made[-1].at - began,
        ready_seconds=max(progress.ready.values()) - began,
        ready_p50=waits[len(waits) // 2],
        ready_p99=waits[int(len(waits) * 0.99)],
        children=len({one.thing for one in made}),
        writes_most=max(writes.values()),
        writes_mean=sum(writes.values()) / count,
        fill_cpu=full.cpu - begin.cpu,
        rss_begin=begin.rss,
        rss_ready=after.rss,
        rss_peak=after.peak,
        cpu={part: round(cpu[part] - components[part], 2) for part in cpu},
        moments=tuple(moments),
    )


def names(count: int) -> list[str]:
    """Of the services."""
    return [f"s{number:05}" for number in range(count)]


async def filled(
    bed: Bed, operator: Operator, called: list[str], done: Callable[[Moment], int]
) -> tuple[Progress, list[Moment]]:
    """Make the services and wait until all are done, with a line a second that says of how many that is so."""
    progress, moments = Progress(), list[Moment]()
    async with services.connected(bed.cluster.kubeconfig) as session:
        following = asyncio.create_task(services.follow(session, progress))
        creating = asyncio.create_task(services.create(session, called, progress))
        began, before = time.monotonic(), Usage.of(pid(operator)).cpu
        made, children = operator_children(operator), 0
        while not moments or done(moments[-1]) < len(called):
            await asyncio.sleep(1.0)
            for task in (following, creating):
                if task.done():
                    task.result()
            usage = Usage.of(pid(operator))
            children = max(children, await asyncio.to_thread(operator_children, operator) - made)
            at = time.monotonic() - began
            cpu = round(usage.cpu - before, 2)
            moments.append(Moment(round(at, 2), len(progress.created), children, len(progress.ready), usage.rss, cpu))
            print(line(moments[-1], done(moments[-1]), len(called)), flush=True)
            if at > FILL_LIMIT:
                raise TimeoutError(f"{done(moments[-1])} of {len(called)} are done after {at:.0f} s")
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
    return progress, moments


def line(moment: Moment, done: int, total: int) -> str:
    """A second of the fill, for people."""
    bar = "█" * (BAR * done // total)
    return (
        f"  {moment.at:5.0f} s  created {moment.created:5}  children {moment.children:6}  Ready {moment.ready:5}"
        f"  operator {moment.rss / 1e6:4.0f} MB {moment.cpu:6.1f} CPU s  {bar:░<{BAR}}"
    )


def operator_children(operator: Operator) -> int:
    """Objects made by the operator's applies, in its own count."""
    return int(operator.metric('rest_client_requests_total{code="201",method="PATCH"}'))


def children(trail: Trail) -> Trail:
    """The creates among the operator's writes, in order of time: an apply is answered 201."""
    made = (one for one in trail if one.resource in CHILDREN and one.verb == "patch" and one.code == 201)
    return Trail(sorted(made, key=lambda one: one.at))


def settled(bed: Bed, operator: Operator) -> None:
    """Nothing waits, and nothing was written for SETTLED_SECONDS."""
    mark, since = bed.mark(), time.monotonic()
    while time.monotonic() - since < SETTLED_SECONDS or not operator.idle():
        time.sleep(0.5)
        if bed.writes(mark):
            mark, since = bed.mark(), time.monotonic()


def restarted(bed: Bed, name: str, proxy: Proxy | None = None) -> tuple[float, int, Usage]:
    """A fresh operator on what is there, ended again: seconds until it has nothing left to do, writes, and its use."""
    mark, began = bed.mark(), time.monotonic()
    operator = bed.operator(name, proxy)
    seconds = consistent(operator, began)
    usage = Usage.of(pid(operator))
    time.sleep(STILL_SECONDS)
    found = seconds, len(bed.writes(mark)), usage
    assert operator.stop() == 0, operator.tail()
    return found


def consistent(operator: Operator, began: float) -> float:
    """Seconds from `began` to its last reconcile, once it was idle and still for STILL_SECONDS."""
    waited("its store is filled", lambda: operator.ask("/readyz")[0] == 200)
    last, count = time.monotonic(), -1.0
    while True:
        now, (idle, done) = time.monotonic(), standing(operator)
        if done != count or not idle or done == 0:
            last, count = now, done
        elif now - last > STILL_SECONDS:
            return last - began
        if now - began > IDLE_LIMIT:
            raise TimeoutError(f"not consistent after {IDLE_LIMIT:.0f} s\n{operator.tail()}")
        time.sleep(LOOK_SECONDS)


def standing(operator: Operator) -> tuple[bool, float]:
    """Whether it leads and nothing waits, and its reconciles so far: all of one look, which costs it little."""
    found: dict[str, float] = {}
    for line in operator.ask("/metrics")[1].splitlines():
        if line.startswith(("leader_election_", "workqueue_depth", "controller_runtime_")):
            series, _, value = line.rpartition(" ")
            name = series.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    waits = found.get("workqueue_depth", 1.0) + found.get("controller_runtime_active_workers", 1.0)
    leads = found.get("leader_election_master_status") == 1
    return leads and waits == 0, found.get("controller_runtime_reconcile_total", 0.0)


def failed_over(bed: Bed) -> tuple[float, float, int]:
    """kill -9 of the leader while another one waits, and a service made at that moment: seconds to its first child,
    seconds until nothing is left to do, writes for other services.
    """
    leader = bed.operator("leader")
    waited("an operator leads", leader.idle)
    heir = bed.operator("heir")
    waited("another is ready to lead", lambda: heir.ask("/readyz")[0] == 200)
    time.sleep(STILL_SECONDS)
    mark, killed, began = bed.mark(), time.time(), time.monotonic()
    leader.kill()
    name = "heir"
    asyncio.run(made(bed, name))
    waited("the next leads", heir.leads)
    seconds = consistent(heir, began)
    written = bed.writes(mark)
    first = min(one.at for one in children(written) if one.name.startswith(name)) - killed
    strays = [one for one in written if one.name and not one.name.startswith(name)]
    assert heir.process is not None
    heir.process.send_signal(signal.SIGTERM)
    heir.process.wait()
    return first, seconds, len(strays)


async def made(bed: Bed, name: str) -> None:
    """One more service."""
    async with services.connected(bed.cluster.kubeconfig) as session:
        await services.create(session, [name], Progress())


def waited(what: str, check: Callable[[], bool]) -> None:
    """Until `check` holds."""
    began = time.monotonic()
    while not check():
        if time.monotonic() - began > IDLE_LIMIT:
            raise TimeoutError(f"{what}: not within {IDLE_LIMIT:.0f} s")
        time.sleep(0.05)


def pid(operator: Operator) -> int:
    """Of its process."""
    assert operator.process is not None
    return operator.process.pid
