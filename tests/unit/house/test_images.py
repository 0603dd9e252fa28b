"""When an image is built again, and what it says when it cannot be."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from graphpod_policy import __version__
from testbed.base_image import EPOCH
from testbed.command import run
from testbed.errors import TestbedError
from testbed.images import build as images
from tests.unit.house.pages import ROOT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small work tree with what the operator image is made of."""
    for name in (*images.RECIPE, "locks/operator.txt", "operator/graphpod_operator/manager/run.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "policy/graphpod_policy").mkdir(parents=True)
    return tmp_path


def key(tree: Path) -> str:
    return images.content_key(images.IMAGES["operator"], tree)


def test_the_key_stays_when_only_caches_and_foreign_files_change(tree: Path) -> None:
    before = key(tree)
    (tree / "operator/graphpod_operator/__pycache__").mkdir()
    (tree / "operator/graphpod_operator/__pycache__/main.pyc").write_text("x")
    (tree / "README.md").write_text("x")
    assert key(tree) == before


@pytest.mark.parametrize(
    "name", ["Dockerfile", "locks/base.txt", "locks/operator.txt", "operator/graphpod_operator/manager/run.py"]
)
def test_the_key_changes_with_a_file_the_image_is_made_of(tree: Path, name: str) -> None:
    before = key(tree)
    (tree / name).write_text("changed")
    assert key(tree) != before


def test_the_key_changes_when_a_file_moves(tree: Path) -> None:
    before = key(tree)
    (tree / "operator/graphpod_operator/manager/run.py").rename(tree / "operator/graphpod_operator/cli.py")
    assert key(tree) != before


def test_a_missing_source_is_named(tree: Path) -> None:
    (tree / "locks/operator.txt").unlink()
    with pytest.raises(TestbedError, match=r"locks/operator\.txt does not exist"):
        key(tree)


def test_the_tags_carry_the_version() -> None:
    assert images.IMAGES["operator"].tag == f"graphpod.dev/operator:{__version__}"
    assert images.IMAGES["runtime"].tag == f"graphpod.dev/runtime:{__version__}-cpu"
    assert images.IMAGES["runtime-cuda"].tag == f"graphpod.dev/runtime:{__version__}-cuda"
    assert __version__ == version("graphpod")


def test_an_unknown_image_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TestbedError, match="there are: operator, runtime, runtime-cuda, demo-weights"):
        images.build("operater")


def test_the_weights_image_is_refused_without_weights() -> None:
    with pytest.raises(TestbedError, match="--weights FOLDER"):
        images.build("demo-weights")


def test_the_build_context_has_one_time_and_one_mode_whatever_the_checkout_has(tree: Path, tmp_path: Path) -> None:
    source = tree / "operator/graphpod_operator/manager/run.py"
    source.chmod(0o600)
    images.copy(images.IMAGES["operator"], tree, tmp_path / "context")
    places = [tmp_path / "context", *(tmp_path / "context").rglob("*")]
    assert {int(place.stat().st_mtime) for place in places} == {EPOCH}
    assert {oct(place.stat().st_mode & 0o777) for place in places if place.is_file()} == {"0o644"}


def test_the_recipe_repeats_the_version_and_the_time_that_every_file_bears() -> None:
    recipe = Path("Dockerfile").read_text()
    assert f"ARG VERSION={__version__}\n" in recipe
    assert f"ARG SOURCE_DATE_EPOCH={EPOCH}\n" in recipe
    assert __version__ == images.VERSION


def test_a_build_is_stale_when_nobody_asked_for_it_within_a_day(tmp_path: Path) -> None:
    new, old, other = (tmp_path / name for name in ("runtime-abc", "runtime-def", "runtime-cuda-def"))
    for folder in (new, old, other):
        folder.mkdir()
    now = old.stat().st_mtime
    assert not images.stale(old, new, now + 3600)
    assert images.stale(old, new, now + 2 * 86400)
    assert not images.stale(other, new, now + 2 * 86400)
    assert not images.stale(new, new, now + 2 * 86400)


def test_labels_are_those_of_oci_and_say_when_and_what_from() -> None:
    there = images.labels(images.IMAGES["operator"], "sha256:12")
    short = {name.removeprefix("org.opencontainers.image."): value for name, value in there.items()}
    assert short["created"] == "2026-11-21T00:00:00Z"
    assert (short["base.name"], short["base.digest"]) == ("graphpod.dev/base:bookworm", "sha256:12")
    assert (short["version"], short["licenses"]) == (__version__, "Apache-2.0")
    assert {"title", "description", "revision", "source"} <= short.keys()


def test_the_revision_is_the_last_commit_of_what_the_image_is_made_of(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        return run(["git", "-C", tree, "-c", "user.name=any", "-c", "user.email=any@example.com", *words]).strip()

    def commit() -> str:
        git("add", "--all")
        git("commit", "--quiet", "--message", "any")
        return git("rev-parse", "HEAD")

    monkeypatch.setattr(images, "ROOT", tree)
    operator = images.IMAGES["operator"]
    assert images.revision(operator) == "unknown"
    git("init", "--quiet")
    first = commit()
    (tree / "README.md").write_text("not in the image")
    assert commit() != first
    assert images.revision(operator) == first
    (tree / "operator/graphpod_operator/manager/run.py").write_text("changed")
    assert images.revision(operator) == f"{first}-dirty"


def test_what_runs_in_an_image_asks_no_package_for_its_own_version() -> None:
    """Images have the sources on their path: graphpod is no installed package there, and such a question ends a pod."""
    asked = re.compile(r"""(version|distribution|metadata|requires|files)\(["']graphpod["']\)""")
    parts = (path for part in ("policy", "operator", "runtime", "sources") for path in (ROOT / part).rglob("*.py"))
    assert [path for path in parts if asked.search(path.read_text())] == []
