"""Functions that were pickled by value, in the process that unpickles them: source and caches.

cloudpickle sends the code of a notebook's or a script's functions, and executors do not have their
files. AutoGraph reads the source of what `tf.function` gets: without it, a loop over a tensor or a
data set fails. Tracebacks show its lines.
"""

from __future__ import annotations
import __future__

import functools
import linecache
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def function_with_source(
    file: str,
    first: int,
    lines: Sequence[str],
    make: Callable[..., types.FunctionType],
    arguments: Sequence[Any],
) -> types.FunctionType:
    """Return `make(*arguments)`, a function whose source `inspect` and tracebacks find.

    Args:
        file: The function's file, which need not exist.
        first: The number of its first line in the file, from 1.
        lines: Its lines, with their ends.
        make: Makes the function.
        arguments: The positional arguments of `make`.
    """
    known = linecache.cache.get(file, ())
    whole = [*known[2]] if len(known) == 4 else []  # with the file's other functions
    whole += ["\n"] * (first - 1 + len(lines) - len(whole))
    whole[first - 1 : first - 1 + len(lines)] = lines
    # Without a time of modification it is kept, whether the file exists or not.
    linecache.cache[file] = sum(map(len, whole)), None, whole, file
    function = make(*arguments)
    if function.__code__.co_flags & __future__.annotations.compiler_flag:
        # cloudpickle leaves it out, and AutoGraph would evaluate the annotations.
        function.__globals__.setdefault("annotations", __future__.annotations)
    return function


def cached(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function with a new cache; `functools.lru_cache` tells the parameters."""
    with_cache: Callable[..., Any] = functools.lru_cache(**parameters)(function)
    return with_cache
