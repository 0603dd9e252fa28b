"""What an install says of the registry that has no images. By helm 4 alone: a dry run of helm 3 needs a cluster."""

from pathlib import Path

import pytest

from tests.api.chart.rendered import notes

pytestmark = pytest.mark.parametrize("helm", ["helm4"], indirect=True)


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ((), True),
        (("image.registry=registry.example/ml",), False),
        (("global.imageRegistry=registry.example/ml",), False),
        (("image.registry=mirror.example/graphpod.dev",), False),
        # The operator's image alone is another: services would still wait for theirs.
        (("image.repository=registry.example/operator",), True),
    ],
)
def test_the_notes_warn_of_the_registry_that_has_no_images(helm: Path, settings: tuple[str, ...], warned: bool) -> None:
    said = notes(helm, *settings)
    assert "is installed in namespace" in said
    assert ("no image is published at graphpod.dev" in said) is warned
    assert ("--set image.registry=REGISTRY" in said) is warned
