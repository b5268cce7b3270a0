"""Calls can be read: at most five positional arguments, and fields of values by their names."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

_HOME = Path(__file__).parent.parent
_MODULES = sorted(
    path
    for package in ("experiment", "spark_jobs", "search")
    for path in (_HOME / package).rglob("*.py")
)
_MOST = 5
_JAVA = {"taskList"}  # a method of Spark's JVM, which takes no names
_FEW = 3  # fields that are read by their order
_BY_ORDER = {"Trial", "Outcome"}  # anybody's searcher makes the one and reads the other
# Still made by their order: none may be added here.
_LEFT = {
    *("Hello", "Reports", "Task", "Ended", "_Child"),
    *("RunState", "Job"),
}
_LEFT_CALLS = {"Outcome", "Ended", "_Child", "cls"}


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in _MODULES:
        yield str(path.relative_to(_HOME)), ast.parse(path.read_text())


def positional(call: ast.Call) -> int:
    """Return how many positional arguments a call passes, those of a `partial` to its function."""
    given = sum(not isinstance(argument, ast.Starred) for argument in call.args)
    return given - (name_of(call.func) == "partial")


def name_of(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]


def is_builtin(function: ast.expr) -> bool:
    return isinstance(function, ast.Name) and hasattr(builtins, function.id)


def test_no_call_passes_more_than_five_positional_arguments():
    long = [
        f"{module}:{node.lineno}: {name_of(node.func)} has {positional(node)}"
        for module, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and positional(node) > _MOST
        and not is_builtin(node.func)
        and name_of(node.func) not in _JAVA | _LEFT_CALLS
    ]
    assert long == []


def fields_in_order(value: ast.ClassDef) -> int:
    """Return how many fields the constructor of a value takes by their order."""
    made_by = [*value.decorator_list, *value.bases]
    if not any("dataclass" in ast.unparse(m) or "Struct" in ast.unparse(m) for m in made_by):
        return 0
    arguments = [keyword for m in made_by if isinstance(m, ast.Call) for keyword in m.keywords]
    if any(keyword.arg == "kw_only" for keyword in [*arguments, *value.keywords]):
        return 0
    count = 0
    for field in value.body:
        if isinstance(field, ast.AnnAssign):
            if ast.unparse(field.annotation).endswith("KW_ONLY"):
                break
            count += 1
    return count


def test_values_of_many_fields_are_made_by_their_names():
    long = [
        f"{module}:{node.lineno}: {node.name} has {fields_in_order(node)}"
        for module, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and fields_in_order(node) > _FEW
        and node.name not in _BY_ORDER | _LEFT
    ]
    assert long == []
