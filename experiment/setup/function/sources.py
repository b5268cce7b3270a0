"""Hashes of user functions, to notice on resume that one was changed."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import tokenize
from collections.abc import Callable
from typing import Any

# The latter two: its file is being edited.
_WITHOUT_SOURCE = (OSError, TypeError, SyntaxError, tokenize.TokenError)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function; for another callable, that of its type."""
    function = _innermost(function)
    return str(getattr(function, "__name__", type(function).__name__))


def hash_of_train(train: Callable[..., Any], pickled: bytes) -> str:
    """Return the SHA-256 of a train function's source; of its pickle if it has no source.

    The pickle has the names of a notebook's cells, which differ in each kernel.
    """
    try:
        source = inspect.getsource(_innermost(train)).encode("utf-8", "backslashreplace")
    except _WITHOUT_SOURCE:
        source = pickled
    return hashlib.sha256(source).hexdigest()


def hash_of_constraint(constraint: Callable[..., Any] | None) -> str | None:
    """Return the SHA-256 of a constraint's source; of its name if it has no source.

    For a lambda, without the call around it, in which the number of trials may change.
    """
    if constraint is None:
        return None
    function = _innermost(constraint)
    try:
        source = _lambdas(function) or inspect.getsource(function)
    except _WITHOUT_SOURCE:
        source = name_of(function)
    return hashlib.sha256(source.encode("utf-8", "backslashreplace")).hexdigest()


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
