"""What the support matrix runs: each architecture of our own decoder in each number format, by each policy."""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from graphpod_policy import Device, KvCacheDtype, Policy, Quantization
from graphpod_policy.model.architectures import ARCHITECTURES
from graphpod_runtime.base.errors import ModelUnsupported
from graphpod_runtime.models.config_json import read_shape
from truth.axes import Variant
from truth.cell import Cell, Outcome
from truth.matrix import Matrix, Tell, run
from truth.models import Subject, small
from truth.scenarios import SCENARIOS


class Format(StrEnum):
    """Of numbers."""

    Plain = "plain"
    Fp8Weights = "FP8 weights"
    Fp8Kv = "FP8 KV cache"


PLAIN = Variant(Policy.Breakable, Policy.Full), Variant(Policy.Piecewise, Policy.Breakable)
"""Each policy of each phase."""
VARIANTS = {Format.Plain: PLAIN, Format.Fp8Weights: PLAIN[:1], Format.Fp8Kv: PLAIN[:1]}
SCENARIO = SCENARIOS[0]
DECODERS = tuple(name for name, row in ARCHITECTURES.items() if not row.text_part)
"""One that is the text part of a larger model is another row's decoder."""


def named(architecture: str, kind: Format) -> str:
    """Of the subject, in cells."""
    return f"{architecture}, {kind}"


def subject(architecture: str, kind: Format) -> Subject:
    """A small model of `architecture`."""
    plain, name = small(architecture), named(architecture, kind)
    match kind:
        case Format.Fp8Weights:
            return replace(plain, name=name, dtype="bfloat16", quantization=Quantization.Fp8, fixed=False)
        case Format.Fp8Kv:
            # What is rounded to FP8 tips by the last place of an element: how far is measured.
            return replace(plain, name=name, kv_cache_dtype=KvCacheDtype.Fp8, fixed=False)
        case _:
            return replace(plain, name=name)


def refused(of: Subject) -> str:
    """Why its start is refused by name; "": it is not."""
    with tempfile.TemporaryDirectory() as parent:
        folder = of.folder(Path(parent))
        try:
            read_shape(folder, of.quantization is Quantization.Fp8)
        except ModelUnsupported as error:
            return str(error).removeprefix(f"{folder / 'config.json'}: ")
    return ""


def cells(architectures: Iterable[str], tell: Tell) -> Iterator[Cell]:
    """Those of `architectures`, as they come."""
    for architecture in architectures:
        for kind, variants in VARIANTS.items():
            one = subject(architecture, kind)
            if because := refused(one):
                yield from (Cell(one.name, each, SCENARIO.name, Outcome.Refused, because) for each in variants)
            else:
                yield from run(Matrix(Device.Cpu, (one,), variants, (SCENARIO,)), tell)
