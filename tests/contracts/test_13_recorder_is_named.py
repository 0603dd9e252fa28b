"""On a CPU the rule NoCuda gives short ladders, and status, every graph metric and the printer column name the
recorder: nobody is told of a speed-up that is not there.
"""

from collections.abc import Callable

import pytest

from graphpod_policy import Backend, Device, Features, GraphRequest, Outcome, Phase, Policy, resolve
from graphpod_policy.metrics import METRICS, Process
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from tests.unit.runtime.conftest import random_prompts


def test_a_cpu_without_a_wish_gets_short_ladders_by_a_rule_that_says_so() -> None:
    plan = resolve(Features(device=Device.Cpu, max_batch=8), GraphRequest())
    prefill, decode = plan.phases[Phase.Prefill], plan.phases[Phase.Decode]
    assert plan.backend is Backend.Recorder
    assert (prefill.planned, prefill.sizes[0], prefill.sizes[-1]) == (Policy.Breakable, 4, 256)
    assert (decode.planned, decode.sizes) == (Policy.Full, (1, 2, 4, 8))
    told = {(row.rule, row.phase, row.outcome) for row in plan.decisions}
    assert {("NoCuda", phase, Outcome.Adjusted) for phase in Phase} <= told


def test_a_gpu_gets_graphs_of_its_own_and_longer_ladders() -> None:
    plan = resolve(Features(device=Device.Cuda, max_batch=64), GraphRequest())
    assert plan.backend is Backend.CudaGraph
    assert plan.phases[Phase.Prefill].sizes[-1] > 256
    assert plan.phases[Phase.Decode].sizes[:5] == (1, 2, 4, 8, 12)
    assert "NoCuda" not in {row.rule for row in plan.decisions}


def test_every_metric_about_graphs_has_a_backend_label() -> None:
    about_graphs = [row for row in METRICS if row.process is Process.Engine and row.name.startswith("graphpod_graph")]
    assert len(about_graphs) >= 10
    assert [row.name for row in about_graphs if "backend" not in row.labels] == []


def test_an_engines_report_and_every_series_it_counts_name_its_backend(
    started: Callable[..., Runner], device: Device
) -> None:
    backend = {Device.Cpu: "Recorder", Device.Cuda: "CudaGraph"}[device]
    runner = started()
    generate(runner, random_prompts(3), 3)
    assert runner.report.as_dict()["backend"] == backend
    series = [sample for sample in runner.counters.snapshot() if "backend" in sample.labels]
    assert len(series) > 20
    assert {sample.labels["backend"] for sample in series} == {backend}


@pytest.mark.parametrize(
    ("backend", "effective", "shown"),
    [
        (Backend.Recorder, Policy.Breakable, "Breakable (recorder)"),
        (Backend.Recorder, Policy.Full, "Full (recorder)"),
        (Backend.Recorder, Policy.Disabled, "Disabled"),
        (Backend.CudaGraph, Policy.Full, "Full"),
    ],
)
def test_the_printer_column_names_the_recorder(backend: Backend, effective: Policy, shown: str) -> None:
    from graphpod_operator.status.graph import display  # the operator's packages are not on a machine with a GPU

    assert display(effective, backend) == shown
