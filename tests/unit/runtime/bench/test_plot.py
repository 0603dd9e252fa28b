"""The picture, as far as a test can look at one."""

from pathlib import Path

import msgspec
import pytest
from matplotlib import image

from graphpod_runtime.bench.figures import variants
from graphpod_runtime.bench.figures.result import Found, Result
from graphpod_runtime.bench.figures.variants import VARIANTS
from graphpod_runtime.bench.output import plot

from .samples import made_up, samples

REFERENCE = Found(variants.REFERENCE, samples=samples(9.0))
FAILED = Found(VARIANTS["eager"], failure="died")


@pytest.mark.parametrize(
    "result",
    [
        made_up(),
        made_up("eager"),
        made_up("piecewise-inductor"),
        made_up("eager", changed=(REFERENCE,)),
        made_up("breakable", changed=(FAILED,)),
        msgspec.structs.replace(made_up("eager"), rows=()),
    ],
    ids=["everything", "eager alone", "one of two starts", "a reference", "one failed", "nothing"],
)
def test_a_result_is_drawn_on_transparent_ground(tmp_path: Path, result: Result) -> None:
    plot.draw(result, tmp_path / "there" / "result.png")
    pixels = image.imread(tmp_path / "there" / "result.png")
    assert pixels.shape == (round(plot.HEIGHT * plot.DPI), round(plot.WIDTH * plot.DPI), 4)
    alpha = pixels[..., 3]
    assert alpha[0].max() == 0
    assert (alpha > 0).any()


def test_every_policy_has_a_colour_and_a_mark_of_its_own() -> None:
    used = {policy for variant in VARIANTS.values() for policy in (variant.prefill, variant.decode)}
    assert used <= set(plot.COLOURS)
    assert len({plot.COLOURS[policy] for policy in used}) == len({plot.MARKS[policy] for policy in used}) == len(used)


def test_without_matplotlib_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    with pytest.raises(plot.NoMatplotlib, match=r"pip install '\.\[bench\]'.*--from FILE --png FILE"):
        plot.draw(made_up("eager"), tmp_path / "x.png")
