"""The three images of an install: whole names from one registry, or each its own."""

from pathlib import Path

import pytest

from graphpod_policy import __version__
from tests.api.chart.conftest import ONE_HELM
from tests.api.chart.rendered import container, render

pytestmark = pytest.mark.parametrize("helm", ONE_HELM, indirect=True)

DIGEST = "sha256:" + "a" * 64


def images(helm: Path, *settings: str) -> tuple[str, str, str]:
    """Of the operator, of an engine on CPUs, of one on GPUs."""
    found = container(helm, *settings)
    engines = dict(word.lstrip("-").split("=", 1) for word in found["args"] if "image=" in word)
    return found["image"], engines["engine-image"], engines["engine-gpu-image"]


@pytest.mark.parametrize(
    "settings", [("image.registry=registry.example:5000/ml",), ("global.imageRegistry=registry.example:5000/ml",)]
)
def test_one_value_names_the_registry_of_every_image(helm: Path, settings: tuple[str, ...]) -> None:
    assert images(helm, *settings) == (
        f"registry.example:5000/ml/operator:{__version__}",
        f"registry.example:5000/ml/runtime:{__version__}-cpu",
        f"registry.example:5000/ml/runtime:{__version__}-cuda",
    )


def test_each_image_keeps_a_repository_a_tag_and_a_digest_of_its_own(helm: Path) -> None:
    found = images(
        helm,
        "image.registry=registry.example",
        "image.tag=1.2",
        "engine.image.repository=engines/cpu",
        "engine.gpuImage.repository=engines/gpu",
        f"engine.gpuImage.digest={DIGEST}",
    )
    assert found == (
        "registry.example/operator:1.2",
        f"registry.example/engines/cpu:{__version__}-cpu",
        f"registry.example/engines/gpu@{DIGEST}",
    )


@pytest.mark.parametrize("name", ["other.example/engine", "localhost/engine", "mirror:5000/engine"])
def test_a_repository_that_names_a_registry_gets_no_other(helm: Path, name: str) -> None:
    operator, cpu, gpu = images(helm, "image.registry=registry.example", f"engine.gpuImage.repository={name}")
    assert operator.startswith("registry.example/operator:")
    assert cpu.startswith("registry.example/runtime:")
    assert gpu == f"{name}:{__version__}-cuda"


def test_without_a_registry_each_repository_is_a_whole_name(helm: Path) -> None:
    settings = ("image.registry=", "image.repository=team/operator", "engine.image.repository=team/runtime")
    assert images(helm, *settings)[:2] == (f"team/operator:{__version__}", f"team/runtime:{__version__}-cpu")


def test_a_registry_with_a_space_is_refused(helm: Path) -> None:
    done = render(helm, "image.registry=registry example")
    assert done.returncode != 0
    assert "registry" in done.stderr
