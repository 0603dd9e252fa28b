"""Parts of a package are imported without what the package imports itself."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphpod_runtime.attention import flashinfer_parts
from graphpod_runtime.attention.flashinfer_parts import import_parts

PACKAGE = "flashinfer_of_a_test"


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One with the parts `jit.env` and `utils`, whose own module notes that it ran."""
    folder = tmp_path / PACKAGE
    (folder / "jit").mkdir(parents=True)
    (folder / "__init__.py").write_text("from . import utils\nWHOLE = True\n")
    (folder / "jit" / "__init__.py").write_text("from ..utils import NUMBER\n")
    (folder / "jit" / "env.py").write_text("from . import NUMBER\n")
    (folder / "utils.py").write_text("NUMBER = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(flashinfer_parts, "PACKAGE", PACKAGE)
    monkeypatch.setattr(flashinfer_parts, "PARTS", (f"{PACKAGE}.jit.env", f"{PACKAGE}.utils"))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_the_package_itself_does_not_run() -> None:
    import_parts()
    import_parts()
    assert importlib.import_module(f"{PACKAGE}.jit.env").NUMBER == 7
    assert importlib.import_module(f"{PACKAGE}.jit").NUMBER == 7
    assert not hasattr(sys.modules[PACKAGE], "WHOLE")


def test_a_part_that_needs_the_package_is_imported_with_all_of_it(
    package: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (package / "jit" / "env.py").write_text(f"from {PACKAGE} import WHOLE\n")
    import_parts()
    assert f"parts of {PACKAGE} cannot be imported by themselves" in caplog.text
    assert importlib.import_module(f"{PACKAGE}.jit.env").WHOLE


def test_a_package_that_is_there_or_missing_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = importlib.import_module(PACKAGE)
    import_parts()
    assert sys.modules[PACKAGE] is whole
    monkeypatch.setattr(flashinfer_parts, "PACKAGE", "flashinfer_that_is_missing")
    import_parts()
    assert "flashinfer_that_is_missing" not in sys.modules
