"""Faults drawn by chance: every place in operator, engine and front where an operator of this table applies.

A fault keeps the file's other lines as they are. Not mutated: annotations, options of classes (frozen, tagged),
f-strings, raised messages and lines of logs (no test should pin their words), code that only a GPU runs, and the rim of
the operator, which only a cluster runs.
"""

import ast
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from benchmarks.mutation.mutant import ROOT, Mutant

AREAS = {
    "operator": ("operator/graphpod_operator", ()),
    "engine": ("runtime/graphpod_runtime", ("front", "bench", "convert")),
    "front": ("runtime/graphpod_runtime/front", ()),
}
"""Name -> (folder, sub-folders left out). `bench` and `convert` are tools, not parts of the engine."""

ON_A_GPU = frozenset(
    f"runtime/graphpod_runtime/{path}"
    for path in (
        "attention/flashinfer.py",
        "attention/pinned_memory.py",
        "compiled/jit.py",
        "graphs/segments/cuda.py",
        *(f"kernels/{path.name}" for path in (ROOT / "runtime/graphpod_runtime/kernels").glob("*_triton.py")),
    )
)
"""Files that a machine without a GPU does not run: their tests are in tests/gpu."""

THE_RIM = frozenset({"operator/graphpod_operator/manager/run.py", "operator/graphpod_operator/manager/kopf_thread.py"})
"""Files that put a process together: what runs them are tests on clusters (tests/api), minutes each."""

FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
SWAPPED: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv}
SILENT = ("logger", "log", "logging", "warnings")
"""Calls on these are words for people."""

Edit = tuple[ast.AST, str, str]
"""(what is replaced, by which text, the operator's name)."""


def drawn(seed: int, count: int, areas: tuple[str, ...] = tuple(AREAS)) -> list[Mutant]:
    """`count` different faults, the areas in turn; the same for the same code and seed."""
    chance = random.Random(seed)
    pools = {area: chance.sample(pool, len(pool)) for area in areas if (pool := candidates(area))}
    return [pools[areas[index % len(areas)]][index // len(areas)] for index in range(count)]


@cache
def candidates(area: str) -> tuple[Mutant, ...]:
    """Every fault of an area, in the order of files and lines."""
    folder, without = AREAS[area]
    return tuple(
        mutant
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.relative_to(ROOT / folder).parts[0] not in without
        and str(path.relative_to(ROOT)) not in ON_A_GPU | THE_RIM
        for mutant in of_file(path, area)
    )


def of_file(path: Path, area: str = "") -> Iterator[Mutant]:
    """Every fault of one file. `original` and `replacement` are whole lines, with as many lines before them as make
    them unique in the file."""
    source = path.read_text()
    lines = source.splitlines(keepends=True)
    file = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    for node, text, name in _edits(ast.parse(source)):
        first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
        # Columns count bytes.
        before = lines[first].encode()[: node.col_offset].decode()  # type: ignore[attr-defined]
        after = lines[last].encode()[node.end_col_offset :].decode()  # type: ignore[attr-defined]
        changed = before + text + after
        start = first
        while source.count("".join(lines[start : last + 1])) != 1:
            start -= 1
        kept = "".join(lines[start:first])
        number = f"{file}:{node.lineno}:{node.col_offset}"  # type: ignore[attr-defined]
        yield Mutant(f"{number}:{name}", file, "".join(lines[start : last + 1]), kept + changed, (), area)


def _edits(tree: ast.Module) -> Iterator[Edit]:
    for node in _mutable(tree):
        match node:
            case ast.Compare(ops=[op, *others]) if type(op) in FLIPPED:
                flipped = ast.Compare(node.left, [FLIPPED[type(op)](), *others], node.comparators)
                yield node, f"({ast.unparse(flipped)})", "compare"
            case ast.BoolOp(op=op):
                other = ast.And() if isinstance(op, ast.Or) else ast.Or()
                yield node, f"({ast.unparse(ast.BoolOp(other, node.values))})", "boolean"
            case ast.UnaryOp(op=ast.Not()):
                yield node, f"({ast.unparse(node.operand)})", "not"
            case ast.BinOp(op=op) if type(op) in SWAPPED:
                swapped = ast.BinOp(node.left, SWAPPED[type(op)](), node.right)
                yield node, f"({ast.unparse(swapped)})", "arithmetic"
            case ast.Constant(value=bool(value)):
                yield node, str(not value), "constant"
            case ast.Constant(value=int(value)):
                yield node, str(value + 1), "constant"
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield node, "pass", "dropped call"
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield node, "return None", "nothing returned"
            case ast.If():
                yield node.test, f"(not ({ast.unparse(node.test)}))", "condition"
            case ast.Call(args=[one, two, *rest]) if ast.dump(one) != ast.dump(two) and not _starred(one, two):
                exchanged = ast.Call(node.func, [two, one, *rest], node.keywords)
                yield node, ast.unparse(exchanged), "swapped arguments"


def _mutable(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below `node` whose change changes what the code does, not what it says."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(node, ast.ClassDef) and name == "keywords":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _words(child):
                yield child
                yield from _mutable(child)


def _words(node: ast.AST) -> bool:
    """Whether `node` is text for people, or for type checkers."""
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Assert():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in SILENT
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _starred(*arguments: ast.expr) -> bool:
    return any(isinstance(argument, ast.Starred) for argument in arguments)
