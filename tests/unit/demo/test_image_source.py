"""Images for a cluster that is not ours, and the chart's values for them."""

import json
import os
from pathlib import Path

import pytest

from demo import images
from demo.chart import image_settings
from demo.current import image_source
from demo.current.image_source import Kind, Registry
from demo.ground import Image
from testbed import TestbedError
from testbed.images.build import IMAGES

DIGEST = "sha256:" + "a" * 64


def references(source: Registry) -> dict[str, str]:
    return {target: image.reference for target, image in source.provide(lambda _: None).items()}


def test_a_prefix_stands_before_each_name_and_keeps_its_tag() -> None:
    found = references(Registry("registry.example:5000/graphpod/"))
    assert found["operator"] == "registry.example:5000/graphpod/operator:" + IMAGES["operator"].tag.rpartition(":")[2]
    assert sorted(found) == sorted(images.TARGETS)


def test_a_whole_reference_wins_over_the_prefix() -> None:
    found = references(Registry("registry.example", {"runtime": "other.example/engine:1"}))
    assert found["runtime"] == "other.example/engine:1"
    assert found["operator"].startswith("registry.example/operator:")


def test_nothing_is_guessed() -> None:
    with pytest.raises(TestbedError, match="RUNTIME_IMAGE, WEIGHTS_IMAGE not given") as told:
        Registry("", {"operator": "a/b:1"})
    for way in ("IMAGES=", "LOAD=kind", "make images"):
        assert way in str(told.value)


@pytest.mark.parametrize(
    ("reference", "repository", "tag", "digest"),
    [
        ("registry.example/a/operator:1.0", "registry.example/a/operator", "1.0", ""),
        ("registry.example:5000/operator", "registry.example:5000/operator", "", ""),
        (f"registry.example:5000/operator@{DIGEST}", "registry.example:5000/operator", "", DIGEST),
        (f"operator:1.0@{DIGEST}", "operator", "1.0", DIGEST),
    ],
)
def test_a_reference_becomes_the_charts_values(reference: str, repository: str, tag: str, digest: str) -> None:
    image = Image(reference, reference)
    whole, *rest = image_settings({"operator": image, "runtime": image})
    assert whole == "image.registry="
    assert rest.pop() == f"engine.gpuImage.repository={repository}"
    assert rest == [
        f"{path}.{key}={value}"
        for path in ("image", "engine.image")
        for key, value in (("repository", repository), ("tag", tag), ("digest", digest))
    ]


def test_kind_gets_every_archive_under_the_name_of_its_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    program = tmp_path / "kind"
    program.write_text(f'#!/bin/sh\ntest -s "$3" && echo "$@" >> {calls}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(images, "layouts", lambda say: {target: tmp_path / target for target in images.TARGETS})
    monkeypatch.setattr(images, "built", lambda found: {target: Image(f"{target}:1", "id") for target in found})
    monkeypatch.setattr(image_source, "save", lambda layout, archive: archive.write_text(json.dumps(str(layout))))
    found = Kind.of("kind-lab").provide(lambda _: None)
    assert [image.reference for image in found.values()] == [f"{target}:1" for target in images.TARGETS]
    lines = [line.split() for line in calls.read_text().splitlines()]
    assert [line[:2] + line[3:] for line in lines] == [["load", "image-archive", "--name", "lab"]] * 3
    assert [Path(line[2]).stem for line in lines] == list(images.TARGETS)


def test_a_context_that_is_not_kinds_is_not_loaded_into() -> None:
    with pytest.raises(TestbedError, match="the context 'prod' is not one of kind's"):
        Kind.of("prod")


def test_without_kind_the_error_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TestbedError, match="kind is not on PATH"):
        Kind("lab").provide(lambda _: None)
