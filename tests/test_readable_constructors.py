"""Calls and assignments are readable.

A call has at most five positional arguments, the fields of a value have their names, and an
assignment gives a value to one attribute.
"""

from __future__ import annotations

import ast
import builtins
import functools
from pathlib import Path

_HOME = Path(__file__).parent.parent
_MODULES = sorted(
    path
    for package in ("experiment", "spark_jobs", "search")
    for path in (_HOME / package).rglob("*.py")
)
_MOST = 5
_JAVA = {"taskList"}  # a method of Spark's JVM, which takes no names
_FEW = 3  # fields that are clear by their order
_BY_ORDER = {"Trial", "Outcome"}  # users' searchers create the one and read the other


@functools.cache
def trees() -> list[tuple[str, ast.Module]]:
    return [(str(path.relative_to(_HOME)), ast.parse(path.read_text())) for path in _MODULES]


def positional(call: ast.Call) -> int:
    """Return the number of positional arguments of a call, or of a `partial` for its function."""
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
        and name_of(node.func) not in _JAVA
    ]
    assert long == []


def fields_in_order(value: ast.ClassDef) -> int:
    """Return the number of positional fields of a value's constructor."""
    made_by = [*value.decorator_list, *value.bases]
    if not any("dataclass" in ast.unparse(m) or "Struct" in ast.unparse(m) for m in made_by):
        return 0
    arguments = [keyword for m in made_by if isinstance(m, ast.Call) for keyword in m.keywords]
    if any(ast.unparse(k) == "kw_only=True" for k in [*arguments, *value.keywords]):
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
        and node.name not in _BY_ORDER
    ]
    assert long == []


def attributes_given(assignment: ast.Assign) -> int:
    """Return the number of attributes that an assignment sets."""
    given = [
        target
        for whole in assignment.targets
        for target in (whole.elts if isinstance(whole, ast.Tuple) else [whole])
    ]
    return sum(isinstance(target, ast.Attribute) for target in given)


def test_an_assignment_gives_a_value_to_one_attribute():
    several = [
        f"{module}:{node.lineno}: {ast.unparse(node)}"
        for module, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and attributes_given(node) > 1
    ]
    assert several == []
