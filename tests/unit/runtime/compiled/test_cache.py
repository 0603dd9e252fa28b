"""Code that one engine compiled serves the next one; what is not whole or not ours is compiled again."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_runtime.base.errors import CompileFailed
from graphpod_runtime.compiled import cache as cache_module
from graphpod_runtime.compiled import cache_folder as entries_module
from graphpod_runtime.compiled import jit
from graphpod_runtime.compiled.cache import CompileCache, CompiledCode
from graphpod_runtime.compiled.cache_folder import Entries, folder_of

HOST = torch.device("cpu")


def scaled(x: Tensor, absent: Tensor | None, count: int, weight: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """Writes an argument, and uses the number of rows."""
    assert absent is None
    out.copy_(x @ weight)
    return x * count, (x + 1).sum(-1)


EXAMPLES = (torch.zeros(2, 8), None, 2, torch.zeros(8, 4), torch.zeros(2, 4))
ROWS = (0, 4)


def code_of(cache: CompileCache, text: str = "scaled") -> CompiledCode:
    return cache.code("scaled", text, scaled, EXAMPLES, ROWS)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one entry."""
    folder = tmp_path_factory.mktemp("compiled")
    with torch.no_grad():
        cache = CompileCache(folder, HOST)
        code_of(cache)
    assert (cache.compiles, cache.loads) == (1, 0)
    assert len(list(folder.iterdir())) == 1, "the entry, and nothing beside it"
    return folder


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Instead of compiling, the name of what would be compiled is noted, and RuntimeError raised."""
    asked: list[str] = []

    def refuse(function: object, examples: object, rows: object, path: Path, metadata: object) -> None:
        asked.append(path.stem)
        raise RuntimeError("to be compiled")

    monkeypatch.setattr(cache_module, "write_package", refuse)
    return asked


@pytest.mark.parametrize("rows", [1, 2, 7, 300])
def test_one_compilation_serves_any_number_of_rows(filled: Path, no_compiler: list[str], rows: int) -> None:
    cache = CompileCache(filled, HOST)
    code = code_of(cache)
    x, weight, out = torch.randn(rows, 8), torch.randn(8, 4), torch.empty(rows, 4)
    product, sums = code(x, None, rows, weight, out)
    torch.testing.assert_close(out, x @ weight)
    torch.testing.assert_close(product, x * rows)
    torch.testing.assert_close(sums, (x + 1).sum(-1))
    assert (cache.compiles, cache.loads) == (0, 1)
    with pytest.raises(ValueError, match="at most 32768"):
        code(torch.zeros(40000, 8), None, 40000, weight, torch.zeros(40000, 4))


def test_compiled_in_the_process_it_is_one_compilation_too_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "AHEAD", frozenset())
    monkeypatch.setitem(jit.OPTIONS, "cpp.vec_isa_ok", True)  # as ahead of time: saves test programs
    cache = CompileCache(tmp_path, HOST)
    with torch.no_grad():
        code = code_of(cache)
        for rows in (1, 2, 7, 300):
            x, weight, out = torch.randn(rows, 8), torch.randn(8, 4), torch.empty(rows, 4)
            product, sums = code(x, None, rows, weight, out)
            torch.testing.assert_close(out, x @ weight)
            torch.testing.assert_close(product, x * rows)
            torch.testing.assert_close(sums, (x + 1).sum(-1))
        assert (cache.compiles, cache.loads) == (1, 0)
        assert list(tmp_path.iterdir()) == []
        # In serving nothing is compiled: what has no code runs as it was written, and is counted.
        cache.sealed = True
        x, weight, out = torch.randn(3, 8), torch.randn(8, 4), torch.empty(3, 4)
        code(x, None, 3, weight, out)
        assert cache.uncompiled == 0
        with torch.enable_grad():  # another state than that it was compiled in
            code(x, None, 3, weight, out.zero_())
        torch.testing.assert_close(out, x @ weight)
        assert (cache.compiles, cache.uncompiled) == (1, 1)


def test_a_compiler_in_the_process_sees_one_number_of_rows_and_no_other_size_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not even where a function of the same name had other sizes before it. Torch 2.11 refuses a slice of a size that
    two numbers of rows were divided for."""
    seen: list[list[Any]] = []

    def look(graph: torch.fx.GraphModule, inputs: Any, config_patches: Any) -> Any:
        values = [node.meta.get("example_value") for node in graph.graph.nodes]
        seen.append([size for value in values if isinstance(value, Tensor) for size in value.shape])
        return graph.forward

    def turned(x: Tensor, places: Tensor, weight: Tensor) -> Tensor:
        heads = (x @ weight).view(places.shape[0], -1, 4)[:, :2]
        return heads.roll(2, -1) * places[:, None, None]

    monkeypatch.setattr(cache_module, "AHEAD", frozenset())
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", look)
    with torch.no_grad():
        cache = CompileCache(tmp_path, HOST)
        for width in (16, 24):
            examples = (torch.zeros(2, 8), torch.zeros(2, dtype=torch.int64), torch.zeros(8, width))
            cache.code("turned", str(width), turned, examples, (0, 1))
    assert len(seen) == 2
    for sizes in seen:
        assert len({str(size) for size in sizes if isinstance(size, torch.SymInt)}) == 1


def test_a_loaded_entry_and_the_models_need_no_compiler_in_the_process(filled: Path) -> None:
    program = f"""
import sys
from pathlib import Path
import torch
import graphpod_runtime.engine.runner
from tests.unit.runtime.compiled.test_cache import CompileCache, HOST, code_of
out = torch.zeros(3, 4)
code_of(CompileCache(Path({str(filled)!r}), HOST))(torch.ones(3, 8), None, 3, torch.ones(8, 4), out)
assert out.eq(8).all()
print(*sorted(name for name in sys.modules if name in ("torch._dynamo", "torch._inductor")))
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == []


def test_other_text_shapes_or_types_are_other_entries(filled: Path, no_compiler: list[str]) -> None:
    cache = CompileCache(filled, HOST)
    x, _, _, weight, out = EXAMPLES
    assert isinstance(weight, Tensor)
    assert isinstance(out, Tensor)
    others = [
        ("another", EXAMPLES, ROWS),
        ("scaled", (x, None, 2, weight.t().contiguous().t(), out), ROWS),
        ("scaled", (x, None, 2, weight.double(), out), ROWS),
        ("scaled", EXAMPLES, (0,)),
    ]
    for text, examples, rows in others:
        with pytest.raises(CompileFailed, match="to be compiled"):
            cache.code("scaled", text, scaled, examples, rows)  # type: ignore[arg-type]
    assert len(no_compiler) == len(others)


def test_code_for_other_threads_or_another_processor_is_another_entry(
    filled: Path, no_compiler: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = torch.get_num_threads()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(torch, "get_num_threads", lambda: threads + 1)
        with pytest.raises(CompileFailed, match="to be compiled"):
            code_of(CompileCache(filled, HOST))
    monkeypatch.setattr(cache_module, "_instructions", lambda: "flags: fpu")
    monkeypatch.setattr(cache_module, "machine", cache_module.machine.__wrapped__)
    with pytest.raises(CompileFailed, match="to be compiled"):
        code_of(CompileCache(filled, HOST))
    assert no_compiler == ["scaled", "scaled"]


def test_code_that_computes_something_else_is_not_used(filled: Path) -> None:
    def otherwise(*arguments: Any) -> tuple[Tensor, Tensor]:
        product, sums = scaled(*arguments)
        return product, sums * 2

    with pytest.raises(CompileFailed, match=r"scaled computes something else .* result 1 differs"):
        CompileCache(filled, HOST).code("scaled", "scaled", otherwise, EXAMPLES, ROWS)


@pytest.mark.parametrize("damage", ["cut short", "of another name", "0666", "0664", "0646", "a link"])
def test_an_entry_that_is_not_whole_or_not_ours_is_passed_over_with_a_line_in_the_log(
    filled: Path, tmp_path: Path, no_compiler: list[str], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    (entry,) = filled.iterdir()
    content = entry.read_bytes()
    if damage == "cut short":
        (tmp_path / entry.name).write_bytes(content[: len(content) // 2])
    elif damage.isdigit():
        (tmp_path / entry.name).write_bytes(content)
        (tmp_path / entry.name).chmod(int(damage, 8))
    elif damage == "a link":
        (tmp_path / entry.name).symlink_to(entry)
    else:
        _, _, digest = entry.stem.rpartition("-")
        key = cache_module._key(HOST, "another", EXAMPLES, ROWS)
        (tmp_path / f"scaled-{key}-{digest}.pt2").write_bytes(content)
    with caplog.at_level(logging.WARNING), pytest.raises(CompileFailed, match="to be compiled"):
        code_of(CompileCache(tmp_path, HOST), "another" if damage == "of another name" else "scaled")
    assert "cannot be used and is made again" in caplog.text


def test_entries_in_a_folder_that_a_pods_group_can_write_are_used_as_the_engine_keeps_them(tmp_path: Path) -> None:
    """A volume with fsGroup: its folder is setgid and writable by the group. What the engine keeps there is not."""
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(0o2775)
    umask = os.umask(0o002)
    try:
        Entries(folder).keep("chain", b"ours", ".pickle")
    finally:
        os.umask(umask)
    (entry,) = folder.iterdir()
    assert entry.stat().st_mode & 0o777 == 0o644
    assert Entries(folder).found("chain", bytes) == b"ours"
    entry.chmod(0o664)  # as the kubelet does with what lies in a volume that it mounts for the first time
    assert Entries(folder).found("chain", bytes) is None
    Entries(folder).keep("chain", b"ours", ".pickle")
    assert Entries(folder).found("chain", bytes) == b"ours", "it takes the place of the one that is not trusted"


def test_an_entry_of_another_user_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Entries(tmp_path).keep("chain", b"theirs", ".pickle")
    (entry,) = tmp_path.iterdir()
    own = os.stat_result(entry.stat())
    foreign = os.stat_result([*own[:4], 12345, *own[5:]])
    monkeypatch.setattr(entries_module.os, "fstat", lambda file: foreign)
    loaded: list[bytes] = []
    assert Entries(tmp_path).found("chain", loaded.append) is None
    assert loaded == []


def test_an_entry_whose_content_is_not_what_its_name_says_is_not_loaded(tmp_path: Path) -> None:
    Entries(tmp_path).keep("chain", b"ours", ".pickle")
    (entry,) = tmp_path.iterdir()
    entry.write_bytes(b"OURS")
    assert Entries(tmp_path).found("chain", bytes) is None


def test_what_is_loaded_is_what_was_checked_though_the_entry_is_exchanged_meanwhile(tmp_path: Path) -> None:
    Entries(tmp_path).keep("chain", b"ours", ".pickle")
    (entry,) = tmp_path.iterdir()

    def load(content: bytes) -> bytes:
        entry.unlink()
        entry.write_bytes(b"another's")
        return content

    assert Entries(tmp_path).found("chain", load) == b"ours"


def test_a_folder_that_cannot_be_written_costs_the_next_start_only(
    tmp_path: Path, filled: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (entry,) = filled.iterdir()
    monkeypatch.setattr(
        cache_module,
        "write_package",
        lambda function, examples, rows, path, metadata: path.write_bytes(entry.read_bytes()),
    )
    (tmp_path / "file").touch()
    cache = CompileCache(tmp_path / "file" / "folder", HOST)
    out = torch.zeros(1, 4)
    with caplog.at_level(logging.WARNING):
        code_of(cache)(torch.ones(1, 8), None, 1, torch.ones(8, 4), out)
    assert out.eq(8).all()
    assert "name a folder in GRAPHPOD_COMPILE_CACHE" in caplog.text


def test_where_the_folder_is() -> None:
    assert folder_of({"GRAPHPOD_COMPILE_CACHE": "/cache", "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor"}) == Path("/cache")
    assert folder_of({"TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor"}) == Path("/tmp/inductor/graphpod")
    assert folder_of({"XDG_CACHE_HOME": "/caches"}) == Path("/caches/graphpod/compiled")
