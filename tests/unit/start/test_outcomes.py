"""`graphpod explain` and the engine's start agree, on services whose outcomes were written down before."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch
import yaml
from safetensors.torch import save_file

from graphpod_operator import cli
from graphpod_operator.api.spec import Spec
from graphpod_operator.cache.service import Service
from graphpod_operator.explain.explanation import explain
from graphpod_operator.explain.manifest import Manifest
from graphpod_operator.intent.engine_config import engine_config
from graphpod_operator.intent.resolver_input import features, graph_request
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_policy import (
    Architecture,
    EngineConfig,
    ExitCode,
    ModelConfig,
    ModelFacts,
    NodeFacts,
    Phase,
    attention_there,
    resolve,
    settled,
)
from graphpod_runtime.attention import choice
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.known_model import model_of
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start.device_state import DeviceState
from graphpod_runtime.engine.start.node import node_of
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.decoder_targets import decoder_targets
from graphpod_runtime.models.random import random_model
from tests.unit.operator.objects import INSTALLED, inference_service
from tests.unit.runtime.front.conftest import Front, launch_fork, write_model
from tests.unit.runtime.kernels.library import library, unit

from .engine_forks import EngineForks, engine_forks

HERE = Path(__file__).parent
MODELS: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "models.yaml").read_text())
DEVICES: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "devices.yaml").read_text())
OUTCOMES: list[dict[str, Any]] = yaml.safe_load((HERE / "outcomes.yaml").read_text())
SIZES: list[dict[str, Any]] = yaml.safe_load((HERE / "sizes.yaml").read_text())
STARTS = "Starts"


def named(entry: dict[str, Any]) -> str:
    return str(entry["name"]).replace(" ", "-")


by_name = pytest.mark.parametrize("entry", OUTCOMES, ids=named)
on_a_cpu = [entry for entry in OUTCOMES if "gpu" not in entry and not entry.get("no_engine")]
on_a_gpu = [entry for entry in OUTCOMES if "gpu" in entry]
as_a_pod = [*{entry["outcome"] == STARTS: entry for entry in reversed(on_a_cpu)}.values()]
"""The first that starts and the first that does not. Two processes take four seconds to start, and the front hands on
whatever reason and code the engine gives (front/test_life.py): the other ends are those of engine processes alone."""


def config_of(model: str) -> dict[str, Any]:
    """The config.json of a model in models.yaml."""
    row = MODELS[model]
    return (config_of(row["of"]) if "of" in row else {}) | row["config"]


def service_of(entry: dict[str, Any]) -> dict[str, Any]:
    """The InferenceService of an outcome."""
    given = {key: entry[key] for key in ("engine", "parallelism", "suspend", "replicas") if key in entry}
    limits = {"nvidia.com/gpu": 1} if "gpu" in entry else {}
    limits |= {"memory": entry["memory"]} if "memory" in entry else {}
    # Few sizes: what becomes of a start is not decided by how many there are.
    graph = {} if "gpu" in entry else {"graph": {"sizes": {"prefill": [16], "decode": [1]}}}
    return inference_service(**given, **graph, **({"resources": {"limits": limits}} if limits else {}))


def engine_json_of(entry: dict[str, Any], folder: Path) -> EngineConfig:
    """What the operator would write for the engine, with the model in `folder`."""
    spec = Spec.model_validate(service_of(entry)["spec"])
    plan = resolve(features(spec), graph_request(spec))
    return replace(engine_config("demo", spec, plan), model=ModelConfig("demo", str(folder)))


@pytest.fixture
def model(entry: dict[str, Any], tmp_path: Path) -> Path:
    """The model's folder: a checkpoint with random weights of what is small and built, else config.json alone."""
    folder = write_model(tmp_path / "model")
    config = config_of(entry["model"])
    (folder / "config.json").write_text(json.dumps(config))
    if entry.get("outcome") == STARTS and "gpu" not in entry:
        drawn = random_model(folder, torch.float32, 64)
        assert isinstance(drawn, Decoder)
        tensors = {name: target.view.clone() for name, target in decoder_targets(drawn).items()}  # type: ignore[attr-defined]
        save_file(tensors, folder / "model.safetensors")
    return folder


@by_name
def test_explain_gives_the_verdict_that_was_written_down(
    entry: dict[str, Any], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(json.dumps(service_of(entry)))
    words = ["explain", "-f", str(file), "--model-config", str(model / "config.json")]
    words += ["--node", f"gpu={entry['gpu']},count=1"] if "gpu" in entry else []
    code = cli.main(words)
    printed = capsys.readouterr()
    assert printed.err == ""
    first = printed.out.splitlines()[0]
    if entry["outcome"] == STARTS:
        assert first == "can start"
        assert code in (0, 3)
        if "attention" in entry:
            assert cli.main([*words, "-o", "json"]) == code
            told = json.loads(capsys.readouterr().out)
            assert (told["attention"]["kernels"], told["dtype"]) == (entry["attention"], entry["dtype"])
            assert entry.get("because", "") in " ".join((told["attention"]["because"], *told["notes"]))
        return
    assert code == 4
    assert first.startswith(f"cannot start: {entry['outcome']}: ")
    assert cli.main([*words, "-o", "json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert told["obstacles"][0]["reason"] == entry["outcome"]
    assert entry["says"] in told["obstacles"][0]["what"]
    assert told["obstacles"][0]["step"] or entry["outcome"] == "FeatureNotBuilt"


@by_name
def test_the_operator_refuses_what_the_spec_alone_decides(entry: dict[str, Any]) -> None:
    found = desire(PlanInput(Service.of(service_of(entry)), INSTALLED))
    if "operator" in entry:
        assert isinstance(found, Refused)
        assert found.reason.name == entry["operator"]
        assert entry["says"] in found.what
    else:
        assert isinstance(found, Desired)
        assert (found.replicas == 0) == (entry["outcome"] == "Suspended")


@pytest.fixture
def engine(entry: dict[str, Any], model: Path, tmp_path: Path) -> Iterator[Front]:
    """A real engine with its front, as a pod runs it."""
    file = tmp_path / "engine.json"
    file.write_bytes(engine_json_of(entry, model).canonical())
    ports = ("--host", "127.0.0.1", "--http-port", "0", "--admin-port", "0")
    words = ("serve", "--config", str(file), "--termination-log", str(tmp_path / "termination-log"), *ports)
    front = launch_fork(tmp_path, words, listens=entry["outcome"] == STARTS)
    yield front
    front.process.kill()
    front.process.wait()


@pytest.mark.parametrize("entry", as_a_pod, ids=named)
def test_a_real_engine_does_what_was_written_down(entry: dict[str, Any], engine: Front, model: Path) -> None:
    if entry["outcome"] == STARTS:
        engine.eventually("ready", lambda: engine.get("/warmup").json()["state"] == "Ready")
        assert_same_limits(entry, engine.get("/warmup").json(), model)
        engine.process.terminate()
        assert engine.ended() == ExitCode.Drained
        return
    assert engine.ended() == ExitCode[entry["outcome"]]
    assert_same_words(entry, engine.termination_log.read_text(), model)


others = [entry for entry in on_a_cpu if entry not in as_a_pod]


@pytest.mark.parametrize("entry", [entry for entry in others if entry["outcome"] == STARTS], ids=named)
def test_a_start_in_this_process_does_what_was_written_down(entry: dict[str, Any], model: Path) -> None:
    runner = Runner(EngineConfig.parse(engine_json_of(entry, model).canonical()), lambda report: None)
    runner.start()
    assert runner.report.as_dict()["state"] == "Ready"
    assert_same_limits(entry, runner.report.as_dict(), model)


@pytest.fixture(scope="module")
def forks() -> Iterator[EngineForks]:
    with engine_forks() as forks:
        yield forks


@pytest.mark.parametrize("entry", [entry for entry in others if entry["outcome"] != STARTS], ids=named)
def test_an_engine_process_ends_as_was_written_down(
    entry: dict[str, Any], forks: EngineForks, model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "engine.json"
    file.write_bytes(engine_json_of(entry, model).canonical())
    end = forks.end_of(file)
    assert (end.code, end.fatal.reason, end.fatal.code) == (ExitCode[entry["outcome"]], entry["outcome"], end.code)
    assert_same_words(entry, f"{end.fatal.reason}: {end.fatal.message}", model)


def assert_same_limits(entry: dict[str, Any], warmup: dict[str, Any], model: Path) -> None:
    """`explain` tells the context, batch and KV tokens that the engine reports."""
    raw = service_of(entry)
    service = Manifest("", "demo", "default", Spec.model_validate(raw["spec"]), raw)
    told = explain(service, ModelFacts.of(json.loads((model / "config.json").read_text())).served).limits
    served = warmup["limits"]["maxModelLen"], warmup["limits"]["maxBatch"], warmup["kv"]["tokens"]
    assert (told.context, told.batch, told.kv_tokens) == served


class Loading(Exception):
    """The start got as far as the weights, which it wants in a type."""


KERNELS = (
    "batch_prefill_with_kv_cache_dtype_q_bf16_dtype_kv_{kv}_dtype_o_bf16_dtype_idx_i32_head_dim_qk_{width}_head_dim_vo_"
    "{width}_posenc_0_use_swa_False_use_logits_cap_False_f16qk_False"
)
RECORDED_KERNELS = (
    *(KERNELS.format(kv=kv, width=width) for kv in ("bf16", "e4m3") for width in (64, 128)),
    KERNELS.format(kv="bf16", width=128) + "_sm90",
)
"""Of the image's folder: those that docs/contributing/images.md names."""

BUILT_FOR_HOPPER = library(unit(Architecture((9, 0))))

FLASHINFER = {
    "__init__.py": "",
    "jit/__init__.py": "",
    "jit/env.py": "from pathlib import Path\nFLASHINFER_AOT_DIR = Path(__file__).parent.parent / 'aot'\n",
    "jit/attention/__init__.py": "",
    "jit/attention/modules.py": """\
NAMES = {'torch.bfloat16': 'bf16', 'torch.float16': 'f16', 'torch.float8_e4m3fn': 'e4m3', 'torch.int32': 'i32'}

def get_batch_prefill_uri(backend, q, kv, o, index, qk, vo, posenc, swa, cap, f16):
    q, kv, o, index = (NAMES[str(dtype)] for dtype in (q, kv, o, index))
    return (f'batch_prefill_with_kv_cache_dtype_q_{q}_dtype_kv_{kv}_dtype_o_{o}_dtype_idx_{index}_head_dim_qk_{qk}_'
            f'head_dim_vo_{vo}_posenc_{posenc}_use_swa_{swa}_use_logits_cap_{cap}_f16qk_{f16}'
            + ('_sm90' if backend == 'fa3' else ''))
""",
}
"""What the start asks of flashinfer: the names of its kernels, and where they are."""


@pytest.fixture
def gpu(entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What PyTorch and the image say on that GPU, at the calls that reach the driver and the disk; the folder of
    flashinfer's kernels.
    """
    device = DEVICES[entry["gpu"]]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: device["name"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: tuple(device["capability"]))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (device["free"], device["total"]))
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    package = tmp_path / "site" / "flashinfer"
    for name, text in FLASHINFER.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    for name in RECORDED_KERNELS:
        (package / "aot" / name).mkdir(parents=True)
        (package / "aot" / name / f"{name}.so").write_bytes(BUILT_FOR_HOPPER)
    for name in [name for name in sys.modules if name.partition(".")[0] == "flashinfer"]:
        monkeypatch.delitem(sys.modules, name)
    # Decode's own kernels can be imported only with triton, which torch's CPU build does not have.
    without_kernels = SimpleNamespace(PagedDecode=lambda shape, dtype, device, shared, trees: None)
    monkeypatch.setitem(sys.modules, "graphpod_runtime.attention.paged_decode", without_kernels)
    monkeypatch.setattr(choice, "TRITON", True)
    monkeypatch.syspath_prepend(package.parent)
    return package / "aot"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("entry", on_a_gpu, ids=named)
def test_the_start_on_a_recorded_gpu_does_what_was_written_down(entry: dict[str, Any], model: Path) -> None:
    def load(folder: Path, dtype: torch.dtype, *_: Any) -> NoReturn:
        raise Loading(dtype)

    runner = Runner(engine_json_of(entry, model), lambda report: None, load=load)
    if entry["outcome"] == STARTS:
        with pytest.raises(Loading) as loading:
            runner.start()
        if "attention" in entry:
            chosen = attention_there(*seen(entry, model))
            assert (chosen.kernels, *loading.value.args) == (entry["attention"], getattr(torch, entry["dtype"]))
            assert entry.get("because", "") in " ".join((chosen.because, *runner.report.warnings))
        return
    with pytest.raises(StartFailure) as caught:
        runner.start()
    assert caught.value.code is ExitCode[entry["outcome"]]
    assert_same_words(entry, str(caught.value), model)


def seen(entry: dict[str, Any], folder: Path) -> tuple[EngineConfig, ModelFacts | None, NodeFacts]:
    """What a start sees of its place, with its type of weights and activations settled."""
    config, model = engine_json_of(entry, folder), model_of(folder)
    node = node_of(config, model)
    return settled(config, model, node)[0], model, node


@pytest.mark.parametrize("entry", [{"name": "", "model": "Qwen3-0.6B", "gpu": "A100-40G", "outcome": STARTS}])
@pytest.mark.parametrize(
    ("content", "kernels", "because"),
    [
        (library(unit(Architecture((8, 0)), Architecture((9, 0)))), "fa2", "fa3 kernels are for Hopper"),
        (library(unit(Architecture((8, 0), ptx=True))), "fa2", "fa3 kernels are for Hopper"),
        (library(unit(Architecture((8, 0))), unit(Architecture((9, 0)))), "torch", "are not built (looked for in "),
        (b"cut off", "torch", "no GPU code can be read: not a 64-bit"),
    ],
    ids=["also for Ampere", "PTX", "in part", "broken"],
)
def test_kernels_run_where_their_own_files_say(
    entry: dict[str, Any], gpu: Path, model: Path, content: bytes, kernels: str, because: str
) -> None:
    for file in gpu.rglob("*.so"):
        file.write_bytes(content)
    chosen = attention_there(*seen(entry, model))
    assert chosen.kernels == kernels
    assert because in chosen.because


class Making(Exception):
    """The start got as far as its static buffers, with these limits and rows."""


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("entry", SIZES, ids=lambda entry: f"{entry['model']} on {entry['gpu']}")
def test_a_start_on_a_recorded_gpu_derives_the_sizes_that_were_written_down(
    entry: dict[str, Any], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffers are for the ladders of this GPU, not for those of the largest that the operator planned for."""

    def made(config: EngineConfig, place: object, model: object, chosen: object, rows: dict[Phase, int]) -> NoReturn:
        raise Making(config.max_model_len, config.max_batch, config.prefill_chunk, [rows[phase] for phase in Phase])

    monkeypatch.setattr(DeviceState, "made", made)
    shape = SimpleNamespace(shape=read_shape(model), unscaled_layers=(), sinks=False, module=torch.nn.Module)
    with pytest.raises(Making) as making:
        Runner(engine_json_of(entry, model), lambda report: None, load=lambda *_: shape).start()  # type: ignore[arg-type, return-value]
    context = entry.get("buffers_for", entry["context"])
    assert making.value.args == (context, entry["batch"], entry["chunk"], entry["rows"])


@pytest.mark.parametrize("entry", SIZES, ids=lambda entry: f"{entry['model']} on {entry['gpu']}")
def test_explain_gives_the_same_sizes(
    entry: dict[str, Any], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(json.dumps(service_of(entry)))
    node = f"gpu={entry['gpu']},count=1"
    cli.main(["explain", "-f", str(file), "--model-config", str(model / "config.json"), "--node", node, "-o", "json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["limits"]["maxModelLen"], told["limits"]["maxBatch"]) == (entry["context"], entry["batch"])
    assert [told[phase]["sizes"][-1] for phase in ("prefill", "decode")] == entry["rows"]
    assert told["limits"]["kvTokens"] == pytest.approx(entry["kv"], rel=0.03)


def assert_same_words(entry: dict[str, Any], end: str, model: Path) -> None:
    """The engine's end starts with its reason, and says what was written down."""
    assert end.startswith(f"{entry['outcome']}: ")
    assert entry["says"] in end
