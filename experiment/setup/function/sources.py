"""Hashes of user functions, to notice on resume that one was changed."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import re
import tokenize
from collections.abc import Callable
from typing import Any

from search.errors import shown

_LONGEST = 1 << 20  # characters of a value that are compared

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
        text = _text(_method_of(train)).encode("utf-8", "backslashreplace")
    except _WITHOUT_SOURCE:
        text = pickled
    return hashlib.sha256(text).hexdigest()


def hash_of_constraint(constraint: Callable[..., Any] | None) -> str | None:
    """Return the SHA-256 of a constraint's text; of its name if it has no source."""
    if constraint is None:
        return None
    try:
        text = _text(constraint)
    except _WITHOUT_SOURCE:
        text = name_of(constraint)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def _method_of(train: Any) -> Callable[..., Any]:
    """Return the method that a call of an object runs; any other function itself."""
    method: Callable[..., Any] = train.__call__
    wraps = hasattr(train, "__wrapped__")  # then it has the source of what it wraps
    return method if inspect.ismethod(method) and not wraps else train


def _text(function: Callable[..., Any]) -> str:
    """Return a function's source, and what a partial or a method binds to it.

    For a lambda, without the call around it, in which the number of trials may change.
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
    return "\n".join((source, *map(_shown_alike, bound)))


def _shown_alike(value: object) -> str:
    """Return a value's repr, which is the same in each process: no addresses, sets in order."""
    if isinstance(value, tuple):  # such as a name with its value
        return ", ".join(map(_shown_alike, value))
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(_shown_alike, value))) + "}"
    return re.sub(" at 0x[0-9A-Fa-f]+", "", shown(value, _LONGEST))


def _lambdas(function: Callable[..., Any]) -> str:
    """Return the lambdas in the first line of a lambda; '' if it is another function."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_name != "<lambda>":
        return ""
    lines, _ = inspect.findsource(function)
    nodes = ast.walk(ast.parse("".join(lines)))
    begun = (n for n in nodes if isinstance(n, ast.Lambda) and n.lineno == code.co_firstlineno)
    return "\n".join(map(ast.unparse, begun))


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function
