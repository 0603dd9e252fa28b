"""Weights and cache leave, and come back to the addresses that graphs hold; new weights come into the same places."""

import ctypes
import mmap
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from graphpod_policy import KvCacheDtype, Policy, Quantization
from graphpod_runtime.base.errors import SelfCheckFailed
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.sleep import refill
from graphpod_runtime.engine.sleep.problems import CannotReload, CannotSleep, CannotWake
from graphpod_runtime.engine.sleep.sleeper import Sleeper, Source
from graphpod_runtime.graphs.captured_graphs import PhaseGraphs
from graphpod_runtime.models import loader
from tests.unit.runtime.conftest import random_prompts, write_family, write_llama

PROMPTS = random_prompts(5)
KINDS = {
    "plain": (Policy.Breakable, Policy.Full, {}),
    "breaks": (Policy.Disabled, Policy.Breakable, {}),
    "FP8": (Policy.Breakable, Policy.Full, {"quantization": Quantization.Fp8, "kv_cache_dtype": KvCacheDtype.Fp8}),
}


def nothing() -> None:
    """A wake and a sleep report progress to it."""


def sleeper_of(runner: Runner) -> Sleeper:
    assert runner.sleeper is not None
    return runner.sleeper


def resident(tensor: Tensor) -> int:
    """Bytes of `tensor`, in whole pages, that are in memory, as the kernel counts them."""
    first = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = (tensor.data_ptr() + tensor.nbytes - first) // mmap.PAGESIZE
    there = (ctypes.c_ubyte * pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mincore(ctypes.c_void_p(first), ctypes.c_size_t(pages * mmap.PAGESIZE), there) == 0
    return sum(one & 1 for one in there) * mmap.PAGESIZE


def largest(runner: Runner) -> tuple[Tensor, Tensor]:
    """A weight, and the keys."""
    weights = runner.engine.model.module().state_dict().values()
    return max(weights, key=lambda one: one.nbytes), runner.engine.attention.cache.keys


def places(runner: Runner) -> dict[str, int]:
    """Addresses of all weights, and of the cache."""
    cache = runner.engine.attention.cache
    found = {name: one.data_ptr() for name, one in runner.engine.model.module().state_dict().items()}
    return found | {"keys": cache.keys.data_ptr(), "values": cache.values.data_ptr()}


@pytest.mark.parametrize("kind", KINDS)
def test_what_slept_gives_the_same_tokens_on_the_same_graphs(
    kind: str, started: Callable[..., Runner], llama_folder: Path
) -> None:
    prefill, decode, changes = KINDS[kind]
    runner = started(prefill, decode, sleep=True, **changes)
    sleeper, before, at = sleeper_of(runner), generate(runner, PROMPTS, 12), places(runner)
    captures = runner.counters.value("graphpod_graph_captures_total")
    weight, keys = largest(runner)
    assert (resident(weight), resident(keys) > 0) == (weight.nbytes // mmap.PAGESIZE * mmap.PAGESIZE, True)

    for _ in range(2):
        sleeper.sleep(nothing)
        assert (sleeper.asleep, sleeper.source) == (True, Source.Disk)
        assert (resident(weight), resident(keys)) == (0, 0)
        sleeper.wake(nothing)
        assert generate(runner, PROMPTS, 12) == before

    assert places(runner) == at
    assert runner.counters.value("graphpod_graph_captures_total") == captures
    assert runner.counters.value("graphpod_graph_fallbacks_total") == runner.counters.value(
        "graphpod_graph_fallbacks_total", reason="Disabled"
    )


def test_a_model_that_transformers_computes_sleeps_too(started: Callable[..., Runner], tmp_path: Path) -> None:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=211, hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96,
        max_position_embeddings=512, eos_token_id=2, initializer_range=0.2,
    )  # fmt: skip
    GPTNeoXForCausalLM(config).eval().save_pretrained(tmp_path)
    runner = started(Policy.Disabled, Policy.Full, folder=tmp_path, sleep=True, reload=True, decode_sizes=(4,))
    before = generate(runner, PROMPTS, 6)
    sleeper_of(runner).sleep(nothing)
    sleeper_of(runner).wake(nothing)
    assert generate(runner, PROMPTS, 6) == before
    with pytest.raises(CannotReload, match="transformers computes"):
        sleeper_of(runner).reload(nothing)


def test_an_engine_that_is_not_to_sleep_keeps_its_weights(started: Callable[..., Runner]) -> None:
    sleeper = sleeper_of(started(Policy.Disabled, Policy.Disabled))
    assert (sleeper.sleeps, sleeper.reloads, sleeper.current) == (False, False, False)
    with pytest.raises(CannotSleep):
        sleeper.sleep(nothing)
    with pytest.raises(CannotReload, match=r"spec\.engine\.reload"):
        sleeper.reload(nothing)


def test_weights_count_as_current_until_a_file_is_written_whatever_time_it_is_given(
    started: Callable[..., Runner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refill, "SETTLED_NS", 0)
    folder = write_llama(tmp_path / "model")
    runner, newer = started(Policy.Disabled, Policy.Disabled, folder=folder, reload=True), tmp_path / "newer"
    file = folder / "model.safetensors"
    assert sleeper_of(runner).current
    before = file.stat()
    shutil.copy(write_llama(newer, seed=1) / "model.safetensors", file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert not sleeper_of(runner).current
    sleeper_of(runner).reload(nothing)
    assert sleeper_of(runner).current
    (folder / "tokenizer.json").write_text("{}")
    assert not sleeper_of(runner).current


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_weights_that_were_written_as_they_were_read_do_not_count_as_current(
    when: str, started: Callable[..., Runner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start during a copy may have read old weights, and a coarse clock shows no difference."""
    monkeypatch.setattr(refill, "SETTLED_NS", 0 if when == "meanwhile" else 3600 * 10**9)
    folder, load = write_llama(tmp_path / "model"), loader.load_model

    def copied_meanwhile(*given: Any) -> Any:
        model = load(*given)
        if when == "meanwhile":
            shutil.copy(write_llama(tmp_path / "newer", seed=1) / "model.safetensors", folder)
        return model

    monkeypatch.setattr("graphpod_runtime.engine.start.sleeping.load_model", copied_meanwhile)
    runner = started(Policy.Disabled, Policy.Disabled, folder=folder, reload=True, load=copied_meanwhile)
    assert (sleeper_of(runner).reloads, sleeper_of(runner).current) == (True, False)


def test_a_file_that_goes_while_it_is_looked_at_ends_no_engine(
    started: Callable[..., Runner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_llama(tmp_path / "model")
    sleeper = sleeper_of(started(Policy.Disabled, Policy.Disabled, folder=folder, sleep=True, reload=True))
    monkeypatch.setattr(Path, "is_file", lambda self: True)
    (folder / "model.safetensors").unlink()
    (folder / "gone.safetensors").symlink_to("nothing")
    assert not sleeper.current
    with pytest.raises(CannotReload, match=r"gone\.safetensors: is a link to a file that is not there"):
        sleeper.reload(nothing)
    sleeper.sleep(nothing)
    with pytest.raises(CannotWake, match="replaced"):
        sleeper.wake(nothing)


def test_weights_that_were_replaced_and_may_not_be_reloaded_need_a_restart(
    started: Callable[..., Runner], tmp_path: Path
) -> None:
    folder = write_llama(tmp_path / "model")
    runner, newer = started(Policy.Disabled, Policy.Disabled, folder=folder, sleep=True), tmp_path / "newer"
    sleeper_of(runner).sleep(nothing)
    shutil.copy(write_llama(newer, seed=1) / "model.safetensors", folder)
    with pytest.raises(CannotWake, match="restart the pod"):
        sleeper_of(runner).wake(nothing)


def test_new_weights_of_the_same_shape_come_into_their_places(started: Callable[..., Runner], tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "model")
    runner, newer = started(folder=folder, reload=True), write_llama(tmp_path / "newer", seed=1)
    before, at = generate(runner, PROMPTS, 12), places(runner)
    checks = runner.counters.value("graphpod_graph_selfchecks_total", result="passed")

    shutil.copy(newer / "model.safetensors", folder)
    sleeper_of(runner).reload(nothing)

    after = generate(runner, PROMPTS, 12)
    assert after != before
    assert after == generate(started(folder=newer), PROMPTS, 12)
    assert places(runner) == at
    assert runner.counters.value("graphpod_graph_selfchecks_total", result="passed") == 2 * checks


def test_weights_that_were_replaced_while_it_slept_do_not_come_back_unchecked(
    started: Callable[..., Runner], tmp_path: Path
) -> None:
    folder = write_llama(tmp_path / "model")
    runner, newer = started(Policy.Disabled, Policy.Full, folder=folder, sleep=True, reload=True), tmp_path / "newer"
    before = generate(runner, PROMPTS, 6)
    sleeper_of(runner).sleep(nothing)
    shutil.copy(write_llama(newer, seed=1) / "model.safetensors", folder)
    with pytest.raises(CannotWake, match="POST /reload"):
        sleeper_of(runner).wake(nothing)
    assert sleeper_of(runner).asleep
    checks = runner.counters.value("graphpod_graph_selfchecks_total", result="passed")
    reloaded, woken = list[None](), list[None]()
    sleeper_of(runner).reload(lambda: reloaded.append(None))
    after = generate(runner, PROMPTS, 6)
    assert after != before
    sleeper_of(runner).sleep(nothing)
    sleeper_of(runner).wake(lambda: woken.append(None))
    assert generate(runner, PROMPTS, 6) == after
    # Both read the same pieces; each graph that is compared is progress, too.
    assert len(reloaded) - len(woken) == checks > 0


def test_new_weights_wake_an_engine_that_sleeps(started: Callable[..., Runner], tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "model")
    runner, newer = started(folder=folder, sleep=True, reload=True), write_llama(tmp_path / "newer", seed=1)
    sleeper_of(runner).sleep(nothing)
    shutil.copy(newer / "model.safetensors", folder)
    sleeper_of(runner).reload(nothing)
    assert not sleeper_of(runner).asleep
    assert generate(runner, PROMPTS, 12) == generate(started(folder=newer), PROMPTS, 12)


def wider(folder: Path) -> None:
    write_llama(folder, intermediate_size=128)


def another_family(folder: Path) -> None:
    write_family(folder, "qwen3")


def transposed(folder: Path) -> None:
    file = folder / "model.safetensors"
    held = load_file(file)
    name = "model.layers.1.mlp.down_proj.weight"
    save_file(held | {name: held[name].T.contiguous()}, file, {"format": "pt"})


def cut_off(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def unreadable(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.unlink()
    file.symlink_to(folder / "gone")  # root may read whatever has no rights


def without_a_tensor(folder: Path) -> None:
    file = folder / "model.safetensors"
    save_file({name: one for name, one in load_file(file).items() if "norm" not in name}, file, {"format": "pt"})


def of_other_numbers(kind: torch.dtype) -> Callable[[Path], None]:
    """Changes the type of one tensor."""

    def change(folder: Path) -> None:
        file = folder / "model.safetensors"
        held = load_file(file)
        name = "model.layers.0.mlp.up_proj.weight"
        save_file(held | {name: held[name].to(kind)}, file, {"format": "pt"})

    return change


def other_words(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (wider, "config.json changed since the start"),
        (another_family, "config.json changed since the start"),
        (transposed, r"down_proj.weight has shape \[96, 144\], config.json says \[144, 96\]"),
        (unreadable, "model.safetensors"),
        (cut_off, "not a whole safetensors file"),
        (without_a_tensor, "tensors are missing"),
        (of_other_numbers(torch.bfloat16), "up_proj.weight is bfloat16, and was float32 at the start; restart"),
        (of_other_numbers(torch.int32), "up_proj.weight is int32, and was float32 at the start; restart"),
        (other_words, "tokenizer.json changed since the start"),
    ],
)
def test_other_weights_are_refused_and_the_engine_goes_on(
    change: Callable[[Path], None], words: str, started: Callable[..., Runner], tmp_path: Path
) -> None:
    folder = write_llama(tmp_path)
    runner = started(Policy.Disabled, Policy.Full, folder=folder, decode_sizes=(4,), reload=True)
    before = generate(runner, PROMPTS, 6)
    change(folder)
    with pytest.raises(CannotReload, match=words):
        sleeper_of(runner).reload(nothing)
    assert generate(runner, PROMPTS, 6) == before


def test_a_graph_that_is_wrong_with_new_weights_is_found(
    started: Callable[..., Runner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = started(Policy.Disabled, Policy.Full, folder=write_llama(tmp_path), decode_sizes=(4,), reload=True)
    replay = PhaseGraphs.replay

    def wrong(self: PhaseGraphs, inputs: Inputs, size: int) -> tuple[Any, ...]:
        results = replay(self, inputs, size)
        results[0][-1].neg_()
        return results

    monkeypatch.setattr(PhaseGraphs, "replay", wrong)
    with pytest.raises(SelfCheckFailed):
        sleeper_of(runner).reload(nothing)
