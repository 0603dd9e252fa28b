"""The rules as they are told: printed, crossed in pairs, and beside SGLang's own matrix."""

import json

import pytest

from graphpod_operator import cli
from graphpod_operator.docs import feature_matrix, sglang_matrix
from graphpod_operator.docs.feature_pairs import CROSSED, pairs
from graphpod_policy.rules import RULES


def test_the_rules_are_printed_for_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules"]) == 0
    text = capsys.readouterr().out
    assert cli.main(["rules", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rules"]
    assert [row["id"] for row in rows] == [rule.id for rule in RULES]
    for rule in RULES:
        assert rule.id in text
    unbuilt = next(row for row in rows if row["id"] == "CpuOffload")
    assert unbuilt["built"] is False
    assert "CpuOffload  (its feature is not built yet)" in text


def test_every_pair_of_features_has_a_cell_in_both_phases() -> None:
    found = list(pairs())
    assert len(CROSSED) >= 17
    impossible = {("Multimodal", "HybridModel"), ("DisaggregatedPrefill", "DisaggregatedDecode")}
    told = {(pair.one.name, pair.other.name) for pair in found}
    names = [row.name for row in CROSSED]
    every = {(one, other) for index, one in enumerate(names) for other in names[index:]}
    assert every - told == impossible
    page = "".join(feature_matrix.body())
    for pair in found:
        assert f"**{pair.prefill.policy}**" in page
        assert pair.prefill.rules or pair.decode.rules or pair.prefill.piecewise


@pytest.mark.parametrize("row", sglang_matrix.ROWS, ids=lambda row: row.feature)
def test_a_row_of_sglangs_matrix_is_ours_or_its_difference_is_explained(row: sglang_matrix.PeerRow) -> None:
    theirs = (row.piecewise, row.breakable, row.decode)
    assert (sglang_matrix.ours(row) == theirs) == (row.differs == "")
    assert row.upstream


def test_one_rule_is_printed_by_its_id_whatever_its_capitals(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules", "nocuda", "-o", "json"]) == 0
    assert {row["id"] for row in json.loads(capsys.readouterr().out)["rules"]} == {"NoCuda"}
    assert cli.main(["rules", "PipelineParallel"]) == 0
    told = capsys.readouterr().out
    assert told.count("\n  PipelineParallel") == 1
    assert "NoCuda" not in told


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("NoCudda", "the nearest are NoCuda"),
        ("padding", "the nearest are PaddingGate"),
        ("xyzzy", "`graphpod rules` lists them"),
    ],
)
def test_an_unknown_rule_is_answered_with_the_nearest(name: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules", name]) == 2
    assert capsys.readouterr().err == f"error: no rule {name}: {hint}\n"
