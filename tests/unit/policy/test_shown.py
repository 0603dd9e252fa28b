"""A value of somebody else's file in a message: whole where it is short, else marked where it is cut."""

import pytest

from graphpod_policy.config import ConfigError, EngineConfig
from graphpod_policy.facts import ModelFacts, ModelUnreadable
from graphpod_policy.model.fp8_scheme import SchemeNotBuilt, scheme_of
from graphpod_policy.model.shown import LONGEST, cut, shown
from graphpod_policy.model.weight_form import form_of

CUT = f"'{'x' * (LONGEST - 2)}…"


def test_a_value_is_whole_or_marked_where_it_is_cut() -> None:
    assert shown("x" * (LONGEST - 2)) == repr("x" * (LONGEST - 2))
    assert shown("x" * (LONGEST - 1)) == CUT
    assert len(CUT) == LONGEST
    assert (cut("x" * LONGEST), cut("x" * (LONGEST + 1))) == ("x" * LONGEST, "x" * (LONGEST - 1) + "…")


def test_each_reader_of_a_file_cuts_alike() -> None:
    long = "x" * 1000
    with pytest.raises(ConfigError, match=f"unknown field {CUT};"):
        EngineConfig.parse(f'{{"{long}": 1}}'.encode())
    with pytest.raises(ModelUnreadable, match=f"found {CUT}$"):
        ModelFacts.of({"text_config": long})
    with pytest.raises(SchemeNotBuilt, match=f"quantization_config of {CUT} is not built"):
        scheme_of({"quant_method": long})
    assert form_of({"quant_method": long}) == f"an unknown form ({cut(long)})"
