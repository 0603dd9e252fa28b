"""The self-check of Piecewise: a compiled piece is compared with what it was compiled from, a compiled trace with the
model's own code.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import CompileMode, ExitCode, Phase, Policy
from graphpod_runtime.compiled.aot import Function, TensorFunction
from graphpod_runtime.compiled.cache import CompileCache, Compiled
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs.piecewise.pieces import SplitBody
from graphpod_runtime.wire.report import SelfCheck
from tests.contracts.start_failures import failure_of

PIECEWISE = (Policy.Piecewise, Policy.Full)


def as_given(argument: Tensor) -> Tensor:
    return argument


def pieces(
    monkeypatch: pytest.MonkeyPatch, off: Callable[[Tensor], Tensor], read: Callable[[Tensor], Tensor] = as_given
) -> None:
    """A compiler that makes of every piece what it was told to compile, but that results of numbers are `off`, and
    arguments as `read` has them."""

    def run(self: CompileCache, name: str, text: str, function: Function, examples: Any, rows: Any) -> Any:
        as_written = TensorFunction(function, examples, rows)

        def compiled(tensors: list[Tensor]) -> tuple[Tensor, ...]:
            if name != Compiled.Piece:
                return as_written(*tensors)
            return tuple(off(one) for one in as_written(*(read(tensor) for tensor in tensors)))

        return compiled

    monkeypatch.setattr(CompileCache, "_run", run)


def refused(started: Callable[..., Runner]) -> None:
    failure = failure_of(started, *PIECEWISE, compile=CompileMode.Inductor)
    assert failure.code is ExitCode.CompileFailed
    assert "piece computes something else than what it was compiled from" in failure.message


def test_compiled_pieces_may_round_otherwise_than_compiled_halves(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces(monkeypatch, lambda result: result * (1 + 4 * torch.finfo(result.dtype).eps))
    runner = started(*PIECEWISE, compile=CompileMode.Inductor)
    assert {phase.self_check for phase in runner.report.phases.values()} == {SelfCheck.Passed}
    assert runner.report.phases[Phase.Prefill].effective is Policy.Piecewise


def test_a_compiled_piece_that_errs_by_more_than_rounding_is_refused(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces(monkeypatch, lambda result: result * 1.001)
    refused(started)


def test_a_compiled_piece_that_reads_its_tables_at_wrong_positions_is_refused(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_the_first(argument: Tensor) -> Tensor:
        return argument if argument.is_floating_point() else torch.zeros_like(argument)

    pieces(monkeypatch, as_given, read=at_the_first)
    refused(started)


def test_a_compiled_piece_that_errs_in_many_rows_only_is_refused(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces(monkeypatch, lambda result: torch.cat((result[:64], result[64:] * 1.001)))
    refused(started)


@pytest.mark.usefixtures("as_written")
@pytest.mark.parametrize("compile", [CompileMode.Nothing, CompileMode.Inductor])
def test_a_wrong_trace_is_caught_though_graphs_hold_what_was_traced(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, compile: CompileMode
) -> None:
    right = SplitBody.__call__

    def shifted(self: SplitBody, hidden: Tensor, positions: Tensor, attend: Any) -> Any:
        return right(self, hidden, positions + 1, attend)

    monkeypatch.setattr(SplitBody, "__call__", shifted)
    failure = failure_of(started, *PIECEWISE, compile=compile)
    assert failure.code is ExitCode.SelfCheckFailed
    assert ("as it was traced" in failure.message) == (compile is CompileMode.Inductor)
