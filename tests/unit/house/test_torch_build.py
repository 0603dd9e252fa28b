"""Which torch a machine gets: the first place that has the build without CUDA, and what happens where none has."""

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from testbed import torch_build
from testbed.errors import TestbedError
from testbed.images import build as images
from testbed.torch_build import Build, Choice, Indexes, Way, choose


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / f"torch-{torch_build.PIN}-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    return tmp_path


def answers(*said: bool) -> list[Callable[[], bool]]:
    return [lambda one=one: one for one in said]  # type: ignore[misc]


def never() -> bool:
    raise AssertionError("asked although an earlier place has it")


def test_a_folder_with_the_wheel_comes_first_and_nothing_else_is_asked(folder: Path) -> None:
    assert choose(None, folder, never, never) == Choice(Build.CPU, Way.FOLDER, folder)


def test_what_pip_and_uv_are_configured_with_comes_before_pytorchs_index(tmp_path: Path) -> None:
    assert choose(None, tmp_path, lambda: True, never) == Choice(Build.CPU, Way.CONFIGURED)


@pytest.mark.parametrize(
    ("index", "found"), [(True, Choice(Build.CPU, Way.INDEX)), (False, Choice(Build.CUDA, Way.PUBLIC))]
)
def test_pytorchs_index_comes_before_the_build_for_cuda(index: bool, found: Choice) -> None:
    assert choose(None, None, *answers(False, index)) == found


def test_torch_cuda_asks_nobody(folder: Path) -> None:
    assert choose(Build.CUDA, folder, never, never) == Choice(Build.CUDA, Way.PUBLIC)


def test_torch_cpu_that_nobody_offers_is_refused_with_each_place_and_the_ways_out(tmp_path: Path) -> None:
    with pytest.raises(TestbedError) as refused:
        choose(Build.CPU, tmp_path, *answers(False, False))
    for words in (f"TORCH_WHEELS={tmp_path} does not hold it", "configured indexes", "TORCH=cuda", torch_build.PIN):
        assert words in str(refused.value)


def test_the_build_for_cuda_is_announced_in_one_line_with_its_size() -> None:
    said = str(Choice(Build.CUDA, Way.PUBLIC))
    assert "4.7 GB" in said
    assert "runs on a CPU" in said
    assert "\n" not in said


def test_another_word_for_torch_is_refused() -> None:
    assert torch_build.asked_for({"TORCH": ""}) is None
    assert torch_build.asked_for({"TORCH": "cuda"}) is Build.CUDA
    with pytest.raises(TestbedError, match="set TORCH=cpu or TORCH=cuda"):
        torch_build.asked_for({"TORCH": "rocm"})


def test_a_wheel_for_another_python_or_version_is_none(tmp_path: Path) -> None:
    (tmp_path / f"torch-{torch_build.PIN}-cp312-cp312-manylinux_2_28_x86_64.whl").touch()
    (tmp_path / "torch-2.12.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    assert not torch_build.has_wheel(tmp_path)


@pytest.mark.parametrize("build", Build)
def test_each_build_has_locks(build: Build) -> None:
    assert build.dev_lock.is_file()
    assert (torch_build.ROOT / build.runtime_lock).is_file()


# --- the indexes of pip and uv

LISTED = """\
:env:.find-links='/opt/wheels /more'
global.cert='/etc/ssl/certs/ca-certificates.crt'
global.index-url='https://mirror.example/simple'
install.index-url='https://other.example/a%20b/simple'
global.extra-index-url='https://one.example\\nhttps://two.example'
"""
PIP = Indexes(
    "https://other.example/a%20b/simple", ("https://one.example", "https://two.example"), ("/opt/wheels", "/more")
)


def test_pips_configuration_is_read_as_pip_weighs_it() -> None:
    assert torch_build.of_pip(LISTED) == PIP
    assert not torch_build.of_pip("global.timeout='3'\n")


def test_pips_configuration_is_passed_on_to_uv_and_to_the_pip_of_image_builds() -> None:
    assert PIP.options() == (
        *("--index-url", PIP.index, "--extra-index-url", "https://one.example"),
        *("--extra-index-url", "https://two.example", "--find-links", "/opt/wheels", "--find-links", "/more"),
    )
    assert PIP.pip_conf() == (
        "[global]\nindex-url = https://other.example/a%%20b/simple\n"
        "extra-index-url =\n    https://one.example\n    https://two.example\n"
        "find-links =\n    /opt/wheels\n    /more\n"
    )
    assert Indexes().pip_conf() == "[global]\n"


def test_uvs_variables_come_before_its_files(tmp_path: Path) -> None:
    file = tmp_path / "uv.toml"
    file.write_text('[[index]]\nurl = "https://a.example"\ndefault = true\n[[index]]\nurl = "https://b.example"\n')
    assert torch_build.of_uv({}, [file]) == Indexes("https://a.example", ("https://b.example",))
    named = {"UV_DEFAULT_INDEX": "https://c.example", "UV_INDEX": "corp=https://d.example?x=1 https://e.example"}
    assert torch_build.of_uv(named, [file]) == Indexes(
        "https://c.example", ("https://d.example?x=1", "https://e.example")
    )
    assert not torch_build.of_uv({}, [tmp_path / "absent.toml"])


# --- PyTorch's index


@pytest.fixture
def served() -> Iterator[tuple[str, list[str]]]:
    """An index and the page that it answers with."""
    page = [""]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page[0].encode())

        def log_message(self, *words: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", page
    server.shutdown()
    server.server_close()


def test_pytorchs_index_counts_when_it_lists_the_very_wheel(served: tuple[str, list[str]]) -> None:
    url, page = served
    assert not torch_build.index_answers(url)
    page[0] = f"torch-{torch_build.PIN.replace('+', '%2B')}-cp311-cp311-manylinux_2_28_x86_64.whl"
    assert torch_build.index_answers(url)


def test_an_index_that_does_not_answer_counts_as_absent() -> None:
    with socket.socket() as mute:  # accepts in the kernel and says nothing
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        assert not torch_build.index_answers(f"http://127.0.0.1:{mute.getsockname()[1]}", limit=0.2)
    assert not torch_build.index_answers("http://127.0.0.1:1")


# --- images


def test_the_engines_image_is_made_with_the_torch_that_the_machine_has() -> None:
    cpu, cuda = (images.described("runtime", build) for build in (Build.CPU, Build.CUDA))
    assert "locks/runtime-cpu.txt" in cpu.sources
    assert "locks/runtime-cuda.txt" in cuda.sources
    assert cuda.tag == cpu.tag
    assert (cpu.goal, cuda.goal) == (1_500_000_000, None)
    assert images.described("operator", Build.CUDA) == images.described("operator", Build.CPU)


@pytest.mark.parametrize(("goal", "needs"), [("docs", False), ("lint", True)])
def test_the_documentation_is_built_without_the_environment_that_has_torch(goal: str, needs: bool) -> None:
    command = ["make", "--dry-run", "--always-make", goal]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ("testbed.torch_build install" in done.stdout) is needs


def test_nothing_but_the_ci_script_names_a_folder_next_to_the_repository() -> None:
    """A user's clone has nothing next to it."""
    roots = ("Makefile", "Dockerfile", "pyproject.toml", "testbed", "demo", "tests", "benchmarks", "docs", "locks")
    files = [
        file
        for root in roots
        for file in ([Path(root)] if Path(root).is_file() else Path(root).rglob("*"))
        if file.suffix in {"", ".py", ".md", ".toml", ".yaml", ".in", ".txt"} and file.is_file()
    ]
    neighbour = "../" + "shared"
    assert [str(file) for file in files if neighbour in file.read_text()] == []


def test_an_index_that_does_not_answer_offers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = tmp_path / "uv"
    silent.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    silent.chmod(0o755)
    monkeypatch.setattr(torch_build, "UV", silent)
    monkeypatch.setattr(torch_build, "LOOK_LIMIT", 0.01)
    assert not torch_build.configured_has_it({"UV_INDEX_URL": "https://index.example/simple"})
