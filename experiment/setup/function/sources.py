"""Hashes of user functions, to notice on resume that one was changed."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import inspect
import re
import threading
import tokenize
from collections.abc import Callable, Iterator
from typing import Any

from experiment.setup.function.modules import name_of as name_of_module
from search.errors import shown

_LONGEST = 1 << 20  # characters of a value that are compared
_MOST = 1_000  # items of a list, tuple or dict that are looked at one by one

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_CONTAINERS = (tuple, list, dict)
_SETS = (set, frozenset)
_TABLES = ("pandas", "polars", "pyarrow")  # their repr depends on the width of the terminal

# In Python 3.11 two threads that parse at once may end by a SystemError (cpython issue 106905).
_PARSING = threading.Lock()

# The latter two: its file is being edited.
_WITHOUT_SOURCE = (OSError, TypeError, SyntaxError, tokenize.TokenError)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function; for another callable, that of its type."""
    function = _innermost(function)
    return str(getattr(function, "__name__", type(function).__name__))


def hash_of_train(train: Callable[..., Any], pickled: bytes) -> str:
    """Return the SHA-256 of a train function's text; of its pickle if it has no source.

    The pickle has the names of a notebook's cells, which differ in each kernel.
    """
    try:
        text = _text(_method_of(train), set()).encode("utf-8", "backslashreplace")
    except _WITHOUT_SOURCE:
        text = pickled
    return hashlib.sha256(text).hexdigest()


def hash_of_constraint(constraint: Callable[..., Any] | None) -> str | None:
    """Return the SHA-256 of a constraint's text; of its name if it has no source."""
    if constraint is None:
        return None
    try:
        text = _text(constraint, set())
    except _WITHOUT_SOURCE:
        text = name_of(constraint)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def _method_of(train: Any) -> Callable[..., Any]:
    """Return the method that a call of an object runs; any other function itself."""
    method: Callable[..., Any] = train.__call__
    wraps = hasattr(train, "__wrapped__")  # then it has the source of what it wraps
    return method if inspect.ismethod(method) and not wraps else train


def _text(function: Callable[..., Any], seen: set[int]) -> str:
    """Return a function's source, and the values that are bound to it.

    For a lambda, without the call around it, in which the number of trials may change.

    Args:
        function: The function.
        seen: The ids of the functions whose text was already returned, and of the containers around
            the value. A function or a container may contain itself.
    """
    bound: list[Any] = []
    while isinstance(function, functools.partial):
        bound += [*function.args, *function.keywords.items()]
        function = function.func
    if inspect.ismethod(function):
        owner = function.__self__
        is_object = hasattr(owner, "__dict__") and not inspect.isclass(owner)
        bound += vars(owner).items() if is_object else [owner]
    source = _lambdas(function) or inspect.getsource(function)
    bound += _bound_by_definition(function)
    return "\n".join((source, *(_shown_alike(value, seen) for value in bound)))


def _bound_by_definition(function: Any) -> Iterator[object]:
    """Yield the values of a function's closure and its defaults, and of functions that it wraps."""
    while function is not None:
        code = getattr(function, "__code__", None)
        cells = getattr(function, "__closure__", None) or ()
        for name, cell in zip(getattr(code, "co_freevars", ()), cells, strict=False):
            with contextlib.suppress(ValueError):  # an empty cell
                yield name, cell.cell_contents
        yield from getattr(function, "__defaults__", None) or ()
        yield from (getattr(function, "__kwdefaults__", None) or {}).items()
        function = getattr(function, "__wrapped__", None)


def _shown_alike(value: Any, seen: set[int]) -> str:
    """Return a text that is the same in each process: no addresses, sets in order.

    Of a module it is the name, of a function its text, of a table the type and the shape, of any
    other value its repr.
    """
    if inspect.ismodule(value):  # its repr has its folder
        return name_of_module(value)
    if inspect.isfunction(value) and id(value) not in seen:
        seen.add(id(value))
        with contextlib.suppress(*_WITHOUT_SOURCE):
            return _text(value, seen)
    if isinstance(value, functools.partial):
        value = ("partial", value.func, value.args, value.keywords)
    with contextlib.suppress(RuntimeError):  # too deep, or changed by another thread
        if type(value) in _SETS:
            return f"set({', '.join(sorted(_shown_alike(item, set(seen)) for item in value))})"
        if type(value) in _CONTAINERS and len(value) <= _MOST and id(value) not in seen:
            return _items_alike(value, seen)
    return _repr_alike(value)


def _repr_alike(value: Any) -> str:
    if type(value) in _PLAIN:
        return shown(value, _LONGEST)
    if str(type(value).__module__).partition(".")[0] in _TABLES:
        return f"{type(value).__qualname__} {getattr(value, 'shape', None)}"
    return re.sub(" at 0x[0-9A-Fa-f]+", "", shown(value, _LONGEST))


def _items_alike(value: Any, seen: set[int]) -> str:
    seen.add(id(value))
    try:
        items = value.items() if type(value) is dict else value
        texts = [_shown_alike(item, seen) for item in items]
    finally:
        seen.discard(id(value))
    return f"{type(value).__name__}({', '.join(texts)})"


def _lambdas(function: Callable[..., Any]) -> str:
    """Return the lambdas in the first line of a lambda; '' if it is another function."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_name != "<lambda>":
        return ""
    lines, _ = inspect.findsource(function)
    with _PARSING:
        nodes = ast.walk(ast.parse("".join(lines)))
    begun = (n for n in nodes if isinstance(n, ast.Lambda) and n.lineno == code.co_firstlineno)
    return "\n".join(map(ast.unparse, begun))


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function
