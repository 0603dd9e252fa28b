"""Images from the Dockerfile, built once for each content.

A built image is a folder in the cache, an OCI layout, whose name holds a hash of everything that went into it; so a
second build with nothing changed is a look at a folder. `save` makes one file of it, the same bytes every time.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed import base_image, torch_build
from testbed.command import run
from testbed.errors import TestbedError
from testbed.images import packed
from testbed.images.store import Report, Store, default_store
from testbed.torch_build import Build, Way

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ("Dockerfile", ".dockerignore", "testbed/sbom.py", "locks/base.txt")
VERSION = "0.1.0"
SBOM = "/usr/share/graphpod/sbom.cdx.json"
LISTED = "sbom.cdx.json"  # the same in the image's folder
KEPT = 86400.0  # s
OPTIONS = ("--layers", "--isolation=chroot", "--pull-never", "--network=host", "--identity-label=false")
SETTLED = "no ids of steps"  # what store.Store.keep does to an image
ENGINE = ("policy/graphpod_policy", "runtime/graphpod_runtime", "sources/graphpod_sources")
CERTIFICATES = Path("/etc/ssl/certs")


@dataclass(frozen=True)
class Image:
    """One target of the Dockerfile. `goal` is its unpacked size in bytes, a goal and not a gate."""

    target: str
    tag: str
    title: str
    sources: tuple[str, ...]
    goal: int | None = None
    contexts: tuple[str, ...] = ()  # folders from elsewhere that the target is built with, by name
    torch: bool = False  # has torch in the build that this machine can have


IMAGES = {
    image.target: image
    for image in (
        Image(
            "operator",
            f"graphpod.dev/operator:{VERSION}",
            "The operator of InferenceService",
            ("locks/operator.txt", "policy/graphpod_policy", "operator/graphpod_operator"),
            300_000_000,
        ),
        Image(
            "runtime",
            f"graphpod.dev/runtime:{VERSION}-cpu",
            "The inference engine, for CPUs",
            ("locks/runtime-cpu.txt", *ENGINE),
            1_500_000_000,
            torch=True,
        ),
        Image(
            "runtime-cuda",
            f"graphpod.dev/runtime:{VERSION}-cuda",
            "The inference engine, for NVIDIA GPUs",
            ("locks/runtime-cuda.txt", *ENGINE),
            contexts=("kernels",),
        ),
        Image(
            "demo-weights",
            "graphpod.dev/demo-weights:smollm2-135m",
            "The model of the demo, to be copied into a volume",
            (),
            contexts=("weights",),
        ),
        Image("stubs", f"graphpod.dev/stubs:{VERSION}", "Stand-ins for tests", ("stubs",)),
    )
}


def described(target: str, torch: Build | None = None) -> Image:
    """The image as this machine builds it: with the build of torch that `TORCH` asks for, else the installed one's.

    Raises `TestbedError` for a target that does not exist.
    """
    if target not in IMAGES:
        raise TestbedError(f"no image is called {target!r}; there are: {', '.join(IMAGES)}")
    image, torch = IMAGES[target], torch or torch_build.asked_for(os.environ) or torch_build.installed()
    if not image.torch or torch is Build.CPU:
        return image
    sources = tuple(torch.runtime_lock if name == Build.CPU.runtime_lock else name for name in image.sources)
    return replace(image, title=f"{image.title}, with torch's CUDA build", sources=sources, goal=None)


def build(
    target: str,
    report: Report = print,
    *,
    weights: Path | None = None,
    kernels: Path | None = None,
    store: Store | None = None,
) -> Path:
    """Path of the image's OCI layout, built when what it is made of has changed. Raises `TestbedError`.

    `weights` is the model folder that `demo-weights` carries, under its own name; `kernels` a folder of flashinfer's
    kernels built ahead of time (`cached_ops`), without which `runtime-cuda` cannot use flashinfer.
    """
    image, store, began = described(target), store or default_store(), time.monotonic()
    if (weights is not None) != (target == "demo-weights"):
        raise TestbedError("the image demo-weights, and no other, is built with a model's folder (--weights FOLDER)")
    contexts = {name: place for name, place in (("weights", weights), ("kernels", kernels)) if place}
    folder = _folder(image, ROOT, store, contexts)
    if folder.exists():
        os.utime(folder)  # in use
        report(f"image {target}: unchanged, {size_line(image, folder)}")
        return folder
    with store.locked(report), tempfile.TemporaryDirectory(prefix="graphpod-image-") as place:
        context = Path(place) / "context"
        copy(image, ROOT, context)  # what is edited meanwhile must not get into a folder named after something else
        folder = _folder(image, context, store, contexts)
        if not folder.exists():
            base = base_image.provide(store, report)
            report(f"image {target}: building …")
            _build(image, context, store, contexts, base)
            store.keep(image.tag, folder, {LISTED: SBOM})
            store.forget(*(old for old in store.images.glob(f"{target}-*") if stale(old, folder, time.time())))
    report(f"image {target}: built in {time.monotonic() - began:.0f} s, {size_line(image, folder)}")
    return folder


def build_anew(target: str, store: Store | None = None) -> packed.Packed:
    """The image built once more without any layer of before. It must be the same; nothing of it is kept as a file."""
    image, store = described(target), store or default_store()
    with store.locked(print), tempfile.TemporaryDirectory(prefix="graphpod-image-") as place:
        context = Path(place) / "context"
        copy(image, ROOT, context)
        base = base_image.provide(store, print)
        again = replace(image, tag=f"{image.tag}-again")
        _build(again, context, store, {}, base, "--no-cache")
        folder = store.images / f"{target}-again"
        store.keep(again.tag, folder, {})
        (found,) = packed.read(folder)
        store.forget(folder)
        store.buildah("rmi", again.tag)
        return found


def save(folder: Path, out: Path) -> None:
    """One file of a built image, for `skopeo copy`, `docker load`, `kind load`; its list of contents next to it."""
    partial = out.with_name(out.name + ".partial")
    with partial.open("wb") as file:
        packed.write(packed.read(folder), file)
    partial.rename(out)
    shutil.copyfile(folder / LISTED, out.with_suffix(".cdx.json"))


def content_key(image: Image, root: Path, contexts: Mapping[str, Path] | None = None) -> str:
    """12 hexadecimal digits over the recipe, the base's, the sources under `root`, their revision, other folders."""
    digest = hashlib.sha256(json.dumps([image.tag, base_image.COMMAND, OPTIONS, SETTLED, labels(image, "")]).encode())
    places = [root / name for name in (*RECIPE, *image.sources)]
    for place in [*places, *(contexts or {}).values()]:
        if not place.exists():
            raise TestbedError(f"{place} does not exist, and image {image.target} is made from it")
        for file in _files(place):
            with file.open("rb") as content:
                body = hashlib.file_digest(content, "sha256").hexdigest()
            digest.update(f"{file.relative_to(place.parent)}\0{body}\n".encode())
    return digest.hexdigest()[:12]


def labels(image: Image, base: str) -> dict[str, str]:
    """The image's labels, by the names that OCI gives them; `base` is the digest of the base image."""
    words = {
        "title": f"graphpod {image.target}",
        "description": image.title,
        "version": VERSION,
        "revision": revision(image),
        "licenses": "Apache-2.0",
        "source": "https://graphpod.dev",
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(base_image.EPOCH)),
        "base.name": base_image.NAME,
        "base.digest": base,
    }
    return {f"org.opencontainers.image.{name}": value for name, value in words.items()} | {"dev.graphpod.sbom": SBOM}


def revision(image: Image) -> str:
    """The last commit that changed what the image is made of, `-dirty` after it where something is not committed.

    Where the sources are not in git: `unknown`.
    """
    places = [*RECIPE, *image.sources]
    try:
        last = run(["git", "-C", ROOT, "log", "-1", "--format=%H", "--", *places]).strip()
        changed = run(["git", "-C", ROOT, "status", "--porcelain", "--", *places]).strip()
    except TestbedError:
        return "unknown"
    return (last or "unknown") + ("-dirty" if changed else "")


def copy(image: Image, root: Path, context: Path) -> None:
    """The build's context: the recipe and this image's sources, with one time and one mode for every file.

    A checkout's times and umask must show neither in the image nor in whether a layer is found again.
    """
    for name in (*RECIPE, *image.sources):
        source, to = root / name, context / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, to)
    for place in (context, *context.rglob("*")):
        place.chmod(0o755 if place.is_dir() else 0o644)
        os.utime(place, (base_image.EPOCH, base_image.EPOCH))


def size_line(image: Image, folder: Path) -> str:
    size = packed.read(folder)[0].size
    missed = f", above the goal of {image.goal / 1e6:.0f} MB" if image.goal and size > image.goal else ""
    return f"{size / 1e6:.0f} MB unpacked{missed}, {image.tag}"


def stale(place: Path, new: Path, now: float) -> bool:
    """Is `place` a build of the image that `new` is one of, which was not used within a day?

    Not at once: another may be loading it. `runtime-cuda-…` is no build of `runtime`.
    """
    same = place.is_dir() and place.name.rpartition("-")[0] == new.name.rpartition("-")[0]
    return same and place != new and now - place.stat().st_mtime > KEPT


def _folder(image: Image, root: Path, store: Store, contexts: Mapping[str, Path]) -> Path:
    return store.images / f"{image.target}-{content_key(image, root, contexts)}"


def _files(place: Path) -> Iterable[Path]:
    if place.is_file():
        return [place]
    return sorted(f for f in place.rglob("*") if f.is_file() and "__pycache__" not in f.parts)


def _build(image: Image, context: Path, store: Store, contexts: Mapping[str, Path], base: str, *options: str) -> None:
    command: list[str | Path] = [
        *options,
        *OPTIONS,
        *("--timestamp", str(base_image.EPOCH), "--build-arg", f"SOURCE_DATE_EPOCH={base_image.EPOCH}"),
        *("--build-arg", f"VERSION={VERSION}", "--build-arg", f"NAME={image.target}"),
        *("--file", context / "Dockerfile", "--target", image.target, "--tag", image.tag),
        *(word for name, value in labels(image, base).items() for word in ("--label", f"{name}={value}")),
    ]
    if CERTIFICATES.is_dir():  # a package index may be behind a certificate that only this machine knows
        command += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
    command += _package_sources(image, context.parent)
    for name in image.contexts:
        place = contexts.get(name, context.parent / "nothing")
        place.mkdir(exist_ok=True)
        command += ["--build-context", f"{name}={place}"]
    if "weights" in contexts:
        command += ["--build-arg", f"MODEL={contexts['weights'].name}"]
    try:
        store.build([*command, context], store.images / f"{image.target}.log")
    except TestbedError as e:
        raise TestbedError(f"image {image.target}: {e}") from e


def _package_sources(image: Image, place: Path) -> list[str | Path]:
    """Options that let the pip of a build look where this machine's pip and uv look; nothing of it is in the image.

    All of it is mounted below /mnt, which every Debian has: a mount point of its own would be left in the layers.
    `place`: a folder that lives as long as the build.
    """
    indexes, mnt = torch_build.configured(os.environ), place / "mnt"
    mounts = {f"links{n}": Path(link) for n, link in enumerate(indexes.links) if Path(link).is_dir()}
    inside = {str(path): f"/mnt/{name}" for name, path in mounts.items()}
    options: list[str | Path] = []
    if image.torch:
        build = Build.CPU if Build.CPU.runtime_lock in image.sources else Build.CUDA
        found = torch_build.choice(os.environ, build)
        options += ["--build-arg", f"TORCH={build.value}"]
        if found.folder is not None:
            mounts["wheels"] = found.folder
        if found.way is not Way.INDEX:
            options += ["--build-arg", "TORCH_INDEX="]
    mnt.mkdir()
    links = tuple(inside.get(link, link) for link in indexes.links)
    (mnt / "pip.conf").write_text(replace(indexes, links=links).pip_conf())
    options += ["--volume", f"{mnt}:/mnt:ro"]
    for name, path in mounts.items():
        (mnt / name).mkdir()
        options += ["--volume", f"{path.resolve()}:/mnt/{name}:ro"]
    return options


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 built, 1 a `TestbedError` (printed), 2 wrong usage."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(prog="python3 -m testbed.images", description="The images of graphpod.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("build", help="build what has changed and print where it is")
    verb.add_argument("targets", nargs="+", choices=list(IMAGES), metavar="TARGET", help=", ".join(IMAGES))
    _add_contexts(verb)
    verb.set_defaults(action=_build_all)
    verb = verbs.add_parser("save", help="build, then write one archive")
    verb.add_argument("target", choices=list(IMAGES), metavar="TARGET")
    verb.add_argument("out", type=Path, metavar="FILE.tar")
    _add_contexts(verb)
    verb.set_defaults(action=lambda args: save(_asked(args.target, args), args.out))
    args = parser.parse_args(argv)
    try:
        args.action(args)
    except TestbedError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


def _add_contexts(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--weights", type=Path, metavar="FOLDER", help="the model that demo-weights carries")
    verb.add_argument("--kernels", type=Path, metavar="FOLDER", help="flashinfer's kernels that runtime-cuda carries")


def _asked(target: str, args: argparse.Namespace) -> Path:
    weights = args.weights if target == "demo-weights" else None
    return build(target, weights=weights, kernels=args.kernels if target == "runtime-cuda" else None)


def _build_all(args: argparse.Namespace) -> None:
    for target in args.targets:
        print(_asked(target, args))
