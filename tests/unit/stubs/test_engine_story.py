"""The story of a stub engine: told like the real engine's, and the same each time."""

import dataclasses
import json
import statistics

import pytest

from graphpod_operator.observe.warmup_report import Reading
from graphpod_policy import (
    EngineConfig,
    ExitCode,
    Features,
    GraphRequest,
    ModelConfig,
    OnCaptureFailure,
    Phase,
    Policy,
    config_hash,
    resolve,
    shorten,
    weaken,
)
from graphpod_policy.metrics import METRICS
from graphpod_runtime.front.requests.termination import Ending
from graphpod_runtime.front.status import Status
from graphpod_runtime.wire.report import StartStage, State
from stubs.engine import start, story
from stubs.engine.answer import INSTEAD, warmup
from stubs.engine.fault import CHOICES, FaultError
from stubs.engine.process import Engine
from stubs.engine.start import tell
from stubs.engine.start_settings import ANNOTATIONS, ENVIRONMENT, StartSettings

SECONDS = 10.0


def engine_json(on_failure: OnCaptureFailure = OnCaptureFailure.Degrade) -> bytes:
    """As the operator writes it."""
    features, request = Features(), GraphRequest(on_capture_failure=on_failure)
    plan = resolve(features, request)
    return EngineConfig.of(features, request, plan, model=ModelConfig("m", "/model/m"), dtype="float32").canonical()


CONFIG = engine_json()
STRICT = engine_json(OnCaptureFailure.Fail)
PLAN = resolve(Features(), GraphRequest())


def last(fault: str, config: bytes = CONFIG):
    """The report at the end of a story."""
    story = tell(config, fault, SECONDS)
    return story.report(story.scenes[-1].at, "uid", config_hash(config))


def keys(value, path=""):
    """Every path of a nested dict."""
    if isinstance(value, dict):
        return {entry for name, inner in value.items() for entry in keys(inner, f"{path}.{name}")}
    return {path}


def test_the_report_has_the_real_engine_s_keys():
    real = Status.of(EngineConfig.parse(CONFIG), config_hash(CONFIG), "uid").warmup()
    assert keys(tell(CONFIG, "", SECONDS).report(0.0, "uid", config_hash(CONFIG))) == keys(real)


def test_before_anything_happens_the_report_is_the_real_engine_s():
    real = Status.of(EngineConfig.parse(CONFIG), config_hash(CONFIG), "uid").warmup()
    told = tell(CONFIG, "", SECONDS).report(0.0, "uid", config_hash(CONFIG))
    assert {**told, "engine": real["engine"], "decisions": real["decisions"]} == real


def test_words_of_states_stages_and_codes_are_the_real_engine_s():
    assert [*CHOICES["state"], "Failed"] == [state.value for state in State]
    assert list(start.SHARES) == [stage.value for stage in StartStage]
    assert sum(start.SHARES.values()) == pytest.approx(1.0)
    assert {code: name for code, name in story.NAMES.items() if code != 137} == {
        code.value: code.name for code in ExitCode if code.name in story.NAMES.values()
    }
    assert {row["name"] for row in last("")["stages"]} == {stage.value for stage in StartStage} - {
        StartStage.Compile.value
    }


def test_the_operator_reads_every_report():
    for fault in ("", "oom:decode:1", "capture:decode:2", "selfcheck:decode:4", "load", "dead:Ready"):
        story = tell(CONFIG, fault, SECONDS)
        for scene in story.scenes:
            Reading.model_validate(story.report(scene.at, "uid", config_hash(CONFIG)))


def test_an_undisturbed_start_takes_the_time_it_was_given():
    story = tell(CONFIG, "", SECONDS)
    assert story.ready_at == pytest.approx(SECONDS)
    assert story.end is None
    assert [story.ready(at) for at in (0.0, SECONDS - 0.1, SECONDS + 0.1)] == [False, False, True]


def test_captures_only_go_forward_and_end_at_the_plan():
    story = tell(CONFIG, "", SECONDS)
    prefill = [len(scene.phases["prefill"].captures) for scene in story.scenes]
    assert prefill == sorted(prefill)
    graph = last("")["graph"]
    for phase, plan in PLAN.phases.items():
        assert graph[phase]["sizes"] == {"planned": len(plan.sizes), "captured": len(plan.sizes), "failed": 0}
        assert graph[phase]["selfCheck"] == "Passed"


def test_states_come_in_the_order_of_a_start():
    states = [scene.state for scene in tell(CONFIG, "", SECONDS).scenes]
    assert list(dict.fromkeys(states)) == ["Loading", "Capturing", "SelfChecking", "Ready"]


def test_a_slow_size_delays_ready_by_just_that():
    assert tell(CONFIG, "slow:prefill:64:30s", SECONDS).ready_at == pytest.approx(SECONDS + 30)


def test_memory_that_ends_halves_the_ladder_once_like_the_policy_does():
    report = last("oom:decode:4")
    ladder = PLAN.phases[Phase.Decode].sizes
    half = ladder[: len(ladder) // 2]
    assert report["graph"]["decode"]["sizes"] == {"planned": len(ladder), "captured": len(half), "failed": 2}
    assert report["graph"]["decode"]["effective"] == "Full"
    assert told_of(report) == told_of_policy(shorten(PLAN, Phase.Decode, half, "x"))


@pytest.mark.parametrize("phase", list(Phase))
def test_a_failed_capture_steps_down_as_the_policy_does(phase):
    size = PLAN.phases[phase].sizes[0]
    report = last(f"capture:{phase}:{size}")
    plan, steps = PLAN, []
    while plan.phases[phase].planned is not Policy.Disabled:
        plan = weaken(plan, phase, "CaptureFailed", "x")
        steps += told_of_policy(plan)
    assert report["graph"][phase]["effective"] == "Disabled"
    assert told_of(report) == steps


def told_of(report):
    """Rule, phase, stage and outcome of each decision."""
    return [tuple(row[key] for key in ("rule", "phase", "stage", "outcome")) for row in report["decisions"]]


def told_of_policy(plan):
    """The same of a plan's newest that the engine's own rules made."""
    own = [decision for decision in plan.decisions if decision.rule in ("CaptureFailed", "LadderMemory")]
    return told_of({"decisions": [own[-1].as_dict()]})


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("load", ExitCode.ModelInvalid),
        ("capture:decode:2", ExitCode.CaptureFailed),
        ("oom:decode:1", ExitCode.CaptureOutOfMemory),
        ("oom:decode:4:fatal", ExitCode.CaptureOutOfMemory),
        ("selfcheck:prefill:64", ExitCode.SelfCheckFailed),
        ("dead:Capturing", ExitCode.EngineDied),
        ("stuck:Loading", ExitCode.Stuck),
        ("nonsense", ExitCode.SettingInvalid),
    ],
)
def test_an_end_has_the_real_engine_s_code_and_first_line(fault, code):
    end = tell(STRICT, fault, SECONDS).end
    assert end is not None
    assert end.code == code
    assert end.line == Ending(code, end.message).line


@pytest.mark.parametrize(("fault", "code"), [("dead:Ready", ExitCode.RankDied), ("stuck:Loading", ExitCode.RankStuck)])
def test_of_several_ranks_one_dies_or_stands_still(fault, code):
    read = json.loads(CONFIG)
    read["features"] = {**read.get("features", {}), "tensor": 2}
    end = tell(json.dumps(read).encode(), fault, SECONDS).end
    assert end.code == code
    assert end.line == Ending(code, end.message).line


def test_an_engine_that_the_kernel_kills_leaves_no_word():
    end = tell(CONFIG, "killed:Capturing:2s", SECONDS).end
    assert (end.code, end.line) == (137, "")


def test_a_failed_start_tells_why_before_it_ends():
    report = last("oom:decode:4:fatal")
    assert report["state"] == "Failed"
    assert report["terminal"]
    assert report["failure"]["reason"] == "CaptureOutOfMemory"
    assert last("dead:Capturing")["failure"] is None


def test_a_size_that_is_not_on_the_ladder_is_refused_not_ignored():
    end = tell(CONFIG, "oom:decode:3", SECONDS).end
    assert end.code == ExitCode.SettingInvalid
    assert "decode has no size 3, its ladder is 1, 2, 4, 8" in end.line


def test_a_liar_names_another_pod_or_configuration():
    assert last("lying:uid")["podUID"] != "uid"
    assert last("lying:hash")["configHash"] != config_hash(CONFIG)


def test_one_that_lies_about_ready_is_ready_amid_the_captures():
    story = tell(CONFIG, "lying:ready", SECONDS)
    assert story.ready(SECONDS * 100)
    assert not story.report(SECONDS * 100, "uid", "hash")["terminal"]


@pytest.mark.parametrize("word", CHOICES["answer"])
def test_each_fault_of_the_answer_is_sent_in_the_report_s_place(word):
    assert warmup(tell(CONFIG, f"answer:{word}", SECONDS), SECONDS, "uid", "hash") == INSTEAD[word]


def test_without_a_fault_the_answer_is_the_report():
    story = tell(CONFIG, "", SECONDS)
    found = warmup(story, SECONDS, "uid", "hash")
    assert found.status == 200
    assert json.loads(found.body) == story.report(SECONDS, "uid", "hash")


def test_a_silent_one_falls_silent_in_its_state():
    story = tell(CONFIG, "silent:Capturing", SECONDS)
    began = next(scene.at for scene in story.scenes if scene.state == "Capturing")
    assert [story.silent(at) for at in (began - 0.1, began)] == [False, True]


def test_flapping_alternates():
    story = tell(CONFIG, "flap:2s", SECONDS)
    assert [story.ready(SECONDS + at) for at in (1, 3, 5, 7)] == [True, False, True, False]


@pytest.mark.parametrize("other", ["dead:Ready:3s", "silent:Ready"])
def test_what_cannot_be_played_beside_flapping_is_refused_not_ignored(other):
    end = tell(CONFIG, f"flap:2s,{other}", SECONDS).end
    assert end.code == ExitCode.SettingInvalid
    assert "neither end nor fall silent" in end.line


def test_warm_up_times_are_log_normal_about_the_median_and_fixed_by_the_pod():
    settings = StartSettings(seconds=20.0, sigma=0.5)
    times = [settings.warmup_seconds(f"pod-{n}") for n in range(2000)]
    assert times[7] == settings.warmup_seconds("pod-7")
    assert statistics.median(times) == pytest.approx(20.0, rel=0.1)
    assert statistics.quantiles(times, n=100)[83] == pytest.approx(20.0 * 2.718281828**0.5, rel=0.15)
    assert StartSettings(seconds=20.0).warmup_seconds("any") == 20.0


@pytest.mark.parametrize("spelled", [ANNOTATIONS, ENVIRONMENT], ids=["annotations", "environment"])
def test_a_wish_is_read_from_annotations_as_from_the_environment(spelled):
    words = {"fault": "load", "seconds": "3", "sigma": "0.2", "drain": "1.5"}
    assert StartSettings.of({spelled[word]: text for word, text in words.items()}, spelled) == StartSettings(
        "load", 3.0, 0.2, 1.5
    )
    assert StartSettings.of({}, spelled) == StartSettings()
    assert set(spelled) == {row.name for row in dataclasses.fields(StartSettings)}


def test_a_wish_that_is_no_number_is_refused_by_name():
    with pytest.raises(FaultError, match=r"warmup-seconds: 'soon'"):
        StartSettings.of({ANNOTATIONS["seconds"]: "soon"}, ANNOTATIONS)


def test_the_stub_s_metrics_are_rows_of_the_metric_table():
    rows = {metric.name: set(metric.labels) for metric in METRICS}
    for line in Engine(CONFIG, StartSettings(), "uid").metrics().splitlines():
        name, _, labels = line.partition("{")
        assert {pair.split("=")[0] for pair in labels.partition("}")[0].split(",")} == rows[name]


def test_the_hash_is_the_policy_s():
    assert Engine(CONFIG, StartSettings(), "uid").config_hash == config_hash(CONFIG)
    assert json.loads(CONFIG)["model"]["name"] == Engine(CONFIG, StartSettings(), "uid").model
