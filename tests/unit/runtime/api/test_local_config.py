"""`serve --model` and `generate`: which device and element type a folder on this machine gets."""

import argparse
import ctypes
import errno
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import NOWHERE, Backend, Device, KvCacheDtype, SpeculativeMethod, settled
from graphpod_runtime.api.gpus import DRIVER, TORCH_CUDA, Gpus, usable_gpus
from graphpod_runtime.api.local_config import LocalError, LocalOptions, add_local_options, local_config

ONE_GPU = Gpus(1, "the NVIDIA driver shows 1 GPU")
NO_GPU = Gpus(0, "this machine has no NVIDIA driver")
SHAPE = {
    "num_attention_heads": 4, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 99
}  # fmt: skip
"""A config.json."""
GEMMA = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024},
    "vision_config": {},
}
"""As gemma-3-4b-it has it: the rest are the architecture's defaults."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    return tmp_path


class Driver:
    """The CUDA driver of a machine with `count` GPUs, or one whose first call fails."""

    def __init__(self, count: int, error: int = 0) -> None:
        self.count, self.error = count, error

    def cuInit(self, flags: int) -> int:
        assert flags == 0
        return self.error

    def cuDeviceGetCount(self, count: Any) -> int:
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = self.count
        return 0


def machine(driver: Driver | None) -> Callable[[str], Any]:
    """What opens libraries on a machine with that driver."""

    def load(name: str) -> Driver:
        assert name == DRIVER
        if driver is None:
            raise OSError(f"{name}: cannot open shared object file")
        return driver

    return load


def torch_of(folder: Path, *, cuda: bool) -> Path:
    library = folder / TORCH_CUDA
    library.parent.mkdir()
    if cuda:
        library.touch()
    return folder


@pytest.mark.parametrize(
    ("driver", "cuda", "count", "words"),
    [
        (Driver(1), True, 1, "shows 1 GPU"),
        (Driver(8), True, 8, "shows 8 GPUs"),
        (Driver(1), False, 0, "PyTorch has no CUDA"),
        (Driver(0), True, 0, "shows no GPU"),
        (Driver(1, error=100), True, 0, "cuInit: error 100"),
        (None, True, 0, "no NVIDIA driver"),
    ],
)
def test_gpus_are_those_that_driver_and_torch_both_have(
    tmp_path: Path, driver: Driver | None, cuda: bool, count: int, words: str
) -> None:
    found = usable_gpus(machine(driver), torch_of(tmp_path, cuda=cuda))
    assert found.count == count
    assert words in found.because


def test_a_gpu_is_used_where_there_is_one_in_16_bits(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = local_config(LocalOptions(model), lambda: ONE_GPU)
    assert (config.features.device, config.features.gpus) == (Device.Cuda, 1)
    assert settled(config, None, NOWHERE)[0].dtype == "bfloat16"
    assert config.resolved().backend is Backend.CudaGraph
    assert capsys.readouterr().err == "graphpod-engine: device auto: cuda (the NVIDIA driver shows 1 GPU)\n"


def test_a_machine_without_one_computes_on_its_cpu_in_32_bits(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = local_config(LocalOptions(model), lambda: NO_GPU)
    assert (config.features.device, config.features.gpus) == (Device.Cpu, 0)
    assert settled(config, None, NOWHERE)[0].dtype == "float32"
    assert capsys.readouterr().err == "graphpod-engine: device auto: cpu (this machine has no NVIDIA driver)\n"


def test_a_full_disk_behind_standard_error_ends_no_start(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, text)

    monkeypatch.setattr(sys, "stderr", Full())
    assert local_config(LocalOptions(model), lambda: NO_GPU).features.device is Device.Cpu


def test_what_is_written_is_taken_and_no_gpu_is_looked_for(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def never() -> Gpus:
        raise AssertionError("looked for a GPU")

    options = LocalOptions(model, device="cpu", dtype="bfloat16", max_model_len=64, max_batch=3)
    config = local_config(options, never)
    assert (config.features.device, config.dtype) == (Device.Cpu, "bfloat16")
    assert (config.max_model_len, config.max_batch) == (64, 3)
    assert local_config(LocalOptions(model, device="cuda", dtype="float32"), never).dtype == "float32"
    assert capsys.readouterr().err == ""


def test_fields_that_an_architecture_has_defaults_for_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GEMMA))
    assert local_config(LocalOptions(tmp_path, device="cpu")).features.device is Device.Cpu


def test_a_draft_model_and_its_method_go_together(model: Path) -> None:
    options = LocalOptions(model, device="cpu", speculative=SpeculativeMethod.DraftModel, draft_model=model)
    features = local_config(options).features
    assert (features.speculative, features.speculative_draft) == (SpeculativeMethod.DraftModel, str(model.resolve()))
    for wrong in (replace(options, draft_model=None), replace(options, speculative=SpeculativeMethod.Ngram)):
        with pytest.raises(LocalError, match="go together"):
            local_config(wrong)
    with pytest.raises(LocalError, match="no such folder"):
        local_config(replace(options, draft_model=model / "nowhere"))
    with pytest.raises(LocalError, match=r"config\.json: a file; give its folder"):
        local_config(replace(options, model=model / "config.json"))
    (model / "a.gguf").touch()
    with pytest.raises(LocalError, match=r"a\.gguf: a file; graphpod-engine convert --gguf .*a\.gguf --out FOLDER"):
        local_config(replace(options, model=model / "a.gguf"))


def test_a_ladder_and_the_type_of_the_kv_cache_are_those_of_the_flags(model: Path) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    add_local_options(parser)
    flags = ["--prefill-sizes", "64,16,64", "--decode-sizes", "1,2", "--kv-cache-dtype", "Fp8", "--device", "cuda"]
    options = LocalOptions.of(parser.parse_args(["--model", str(model), *flags]))
    config = local_config(options)
    assert (config.graph.prefill.sizes, config.graph.decode.sizes) == ((16, 64), (1, 2))
    assert config.features.kv_cache_dtype is KvCacheDtype.Fp8
    assert config.prefill_chunk == 64
    plain = local_config(replace(options, prefill_sizes=None, decode_sizes=None, kv_cache_dtype=KvCacheDtype.Auto))
    assert len(plain.graph.prefill.sizes) > 2
    assert plain.features.kv_cache_dtype is KvCacheDtype.Auto


@pytest.mark.parametrize("word", ["0", "8,x", "", "8,,16", "9999999999", ",".join(map(str, range(1, 130)))])
def test_a_ladder_that_no_spec_can_have_is_refused_with_its_flag(
    word: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_local_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--decode-sizes", word])
    assert "argument --decode-sizes: " in capsys.readouterr().err
