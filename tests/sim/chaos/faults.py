"""Everything that is broken on purpose: a table. `docs/reference/chaos.md` is made from it."""

from dataclasses import dataclass

from stubs.faults.fault import Answer, Cut, Freeze, Slow, Turn, WatchError
from stubs.kubecall import WRITES
from tests.sim.chaos import breaking as by
from tests.sim.chaos.arena import WITHIN, Inject
from tests.sim.chaos.scenarios import CREATE, SCENARIOS, UPDATE, Scenario

ORDER = "objects, pods and status end as in a run that nothing disturbed"
WORK = (CREATE, UPDATE)
"""Scenarios in which the operator has something to write."""


@dataclass(frozen=True)
class Fault:
    """`what` is done, and what it `shows` beside the oracles of every run. `extra`: writes it may cost. `quick`: the
    scenarios that make test goes through with it. `within`: seconds until all is in order.
    """

    name: str
    what: str
    inject: Inject
    scenarios: tuple[Scenario, ...] = SCENARIOS
    shows: str = ORDER
    extra: int = 6
    quick: tuple[Scenario, ...] = ()
    within: float = WITHIN


FAULTS = (
    # the wire
    Fault("write 409", "the first two writes are answered 409", by.wire(Answer(409), WRITES, Turn(times=2)), WORK),
    Fault(
        "write 429", "the second and third write are answered 429 with Retry-After: 1",
        by.wire(Answer(429, retry_after=1), WRITES, Turn(first=2, times=2)), WORK,
    ),
    Fault("write 500", "three writes are answered 500", by.wire(Answer(500), WRITES, Turn(first=2, times=3)), WORK),
    Fault(
        "write 503", "the third write is answered 503 with Retry-After: 1",
        by.wire(Answer(503, retry_after=1), WRITES, Turn(first=3, times=1)), WORK,
    ),
    Fault(
        "write cut", "two writes are done, and the connection ends in the middle of their answers",
        by.wire(Cut(after_bytes=30), WRITES, Turn(first=2, times=2)), WORK, quick=(UPDATE,),
    ),
    Fault("write slow", "every write takes half a second more", by.wire(Slow(delay=0.5), WRITES), WORK),
    Fault("read 429", "two reads are answered 429", by.wire(Answer(429, retry_after=1), by.READS, Turn(times=2)), WORK),
    Fault("read 500", "two reads are answered 500", by.wire(Answer(500), by.READS, Turn(times=2)), WORK),
    Fault("read cut", "the answers to two reads are cut", by.wire(Cut(), by.READS, Turn(times=2)), WORK),
    Fault("read slow", "every read takes half a second more", by.wire(Slow(delay=0.5), by.READS), WORK),
    Fault(
        "500 by chance", "of all requests three in ten are answered 500, four times",
        by.wire(Answer(500), WRITES | by.READS, Turn(probability=0.3, seed=7, times=4)), WORK, extra=12,
    ),
    Fault("watch 410", "watches end with 410 inside, nine times", by.wire(WatchError(410), by.WATCHES, Turn(times=9))),
    Fault("watch 500", "a watch ends with 500 inside", by.wire(WatchError(500), by.WATCHES, Turn(times=1))),
    Fault("watch cut", "nine watches are cut", by.wire(Cut(), by.WATCHES, Turn(times=9))),
    Fault(
        "watch cut in an event", "nine watches are cut in the middle of an event",
        by.wire(Cut(after_events=1, after_bytes=9), by.WATCHES, Turn(times=9)), WORK,
    ),
    Fault("watch 429", "watches end, and four are refused with 429", by.watches_refused(Answer(429, retry_after=1), 4)),
    Fault("watch frozen", "watches send nothing for 5 s", by.watches_frozen(Freeze(), 5.0)),
    # the control plane
    Fault(
        "API server killed", "kill -9 of the API server amid the writes, and a new one",
        by.amid_writes(by.api_server_killed), extra=10, within=120,
    ),
    Fault("etcd paused 1 s", "etcd stands still for 1 s amid the writes", by.amid_writes(by.etcd_paused(1)), extra=8),
    Fault("etcd paused 5 s", "the same for 5 s", by.amid_writes(by.etcd_paused(5)), extra=10),
    Fault(
        "etcd paused 20 s", "the same for 20 s, in which the Lease cannot be renewed",
        by.amid_writes(by.etcd_paused(20)), extra=14, within=120,
    ),
    # the operator
    Fault("operator ended", "SIGTERM amid the writes, and a new one", by.amid_writes(by.operator_stopped)),
    Fault("operator frozen", "SIGSTOP for 5 s amid the writes", by.amid_writes(by.operator_frozen(5))),
    Fault(
        "two operators", "a second one waits; the first is killed amid its writes, and comes back",
        by.two_operators, shows=f"one writes at a time; {ORDER}", extra=8, within=120,
    ),
    Fault("clock an hour ahead", "the operator's wall clock is 1 h ahead", by.clock_off(3600)),
    Fault("clock an hour behind", "the operator's wall clock is 1 h behind", by.clock_off(-3600)),
    # people
    # each round: three objects are put back, and pods come, load and go, of which the status tells
    Fault(
        "rival on children", "somebody scales the Deployment and takes labels away, six times in 3 s",
        by.rival(by.on_children), shows=f"put back each time, reported by one Event; {ORDER}", extra=6 * by.ROUNDS + 6,
    ),
    Fault(
        "rival on status", "somebody writes another phase, address and count into the status, six times in 3 s",
        by.rival(by.on_status), shows=f"put back each time; {ORDER}", extra=2 * by.ROUNDS + 6, quick=(CREATE,),
    ),
    Fault(
        "status wiped", "the status is taken away, six times in 3 s", by.rival(by.status_wiped),
        shows=f"written again from what is; {ORDER}", extra=2 * by.ROUNDS + 6,
    ),
    Fault(
        "relentless rival on children", "somebody scales the Deployment 60 times without a pause",
        by.rival(by.on_replicas, by.RELENTLESS, 0.0), WORK,
        shows=f"no hot loop: put back less often each time, reported as Contested; {ORDER}", extra=40, within=120,
    ),
    Fault(
        "relentless rival on status", "somebody writes another status 60 times without a pause",
        by.rival(by.on_status, by.RELENTLESS, 0.0), WORK,
        shows=f"no hot loop: put back less often each time, reported as Contested; {ORDER}", extra=24, within=120,
    ),
    # nodes and engines
    Fault(
        "node lost", "the node of a pod says nothing any more", by.node_lost,
        shows=f"another pod elsewhere; {ORDER}", extra=12, within=120,
    ),
    Fault(
        "killed for its memory", "the kernel kills each engine as it captures, until that is fixed",
        by.engines("killed:Capturing", told=("Ready", "False", "OutOfMemory")), WORK,
        shows=f"OutOfMemory; {ORDER}", extra=16, within=120,
    ),
    Fault(
        "image missing", "the image of the pods cannot be pulled, until that is fixed",
        by.engines(image="registry.invalid/engine:1", told=("Ready", "False", "ImagePullFailed")), WORK,
        shows=f"ImagePullFailed; {ORDER}", extra=16, within=120,
    ),
    Fault(
        "engine of another pod", "each engine says that it is another pod, until that is fixed",
        by.engines("lying:uid", told=("GraphsCaptured", "Unknown", "EngineMisreports")), WORK,
        shows=f"never Ready meanwhile; {ORDER}", extra=16, within=120,
    ),
    Fault(
        "engine of another configuration", "each engine says that it runs something else, until that is fixed",
        by.engines("lying:hash", told=("GraphsCaptured", "Unknown", "EngineMisreports")), WORK,
        shows=f"never Ready meanwhile; {ORDER}", extra=16, within=120,
    ),
    Fault(
        "engine ready too early", "/readyz says yes amid captures that never end, until that is fixed",
        by.engines("lying:ready", told=("WorkloadAvailable", "True", "Available")), WORK,
        shows=f"never Ready meanwhile; {ORDER}", extra=16, within=120,
    ),
    Fault(
        "engine silent", "/warmup accepts and never answers, until that is fixed",
        by.engines("silent:warmup", told=("GraphsCaptured", "Unknown", "EngineUnreachable")), WORK,
        shows=f"never Ready meanwhile; {ORDER}", extra=16, within=120,
    ),
    Fault(
        "engine slow", "one graph takes 3 s more to capture", by.engines("slow:prefill:64:3s"), WORK, extra=10,
    ),
    Fault(
        "engine dies", "each engine dies as it captures, until that is fixed",
        by.engines("dead:Capturing", told=("Ready", "False", "EngineDied")), WORK,
        shows=f"EngineDied; {ORDER}", extra=16, within=120,
    ),
)  # fmt: skip
