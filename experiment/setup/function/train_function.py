"""Checks and pickling of the train function, before any use of Spark."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import pickle
import sys
import tokenize
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import cloudpickle

from experiment.setup.function.sent_modules import SentModules, is_sent
from search.errors import InvalidArgument, did_you_mean, shown
from spark_jobs.user_sources import cached, function_with_source

TakeBuffer = Callable[[Any], Any]
LARGEST_FUNCTION = 64 << 20
"""Maximum bytes of a pickled function. Each slot gets a copy, with all that it refers to."""


def check_arguments(
    train: Callable[..., Any], names: Iterable[str], conditional: Collection[str] = ()
) -> None:
    """Check that `train` can be called with these keyword arguments.

    Args:
        train: The train function.
        names: The names of the hyperparameters.
        conditional: The names of those that only some trials have.

    Raises:
        InvalidArgument: `train` is not callable, does not accept a name, needs one that is missing,
            or has no default for a conditional one.
    """
    if not callable(train):
        raise InvalidArgument("train", "a function", shown(train))
    if kind := _without_value(train):
        hint = "return the score; call a coroutine by asyncio.run()"
        raise InvalidArgument("train", "a function that returns its score", kind, hint)
    try:
        parameters = signature_of(train).parameters
    except (TypeError, ValueError):  # a builtin without a signature: the call will show it
        return
    given = set(names)
    _check_by_name(parameters, given)
    _check_accepted(parameters, given)
    _check_required(parameters, given, conditional)


def signature_of(train: Callable[..., Any]) -> inspect.Signature:
    """Return the signature by which a call of a function succeeds or fails.

    `inspect.signature` looks through all decorators; this stops at the first one that does not pass
    on all arguments.

    Raises:
        TypeError: It is no function.
        ValueError: It is a builtin without a signature.
    """
    return inspect.signature(_behind_decorators(train), follow_wrapped=False)


def _behind_decorators(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function behind decorators that pass on all arguments that they get."""
    if isinstance(function, functools.partial):
        inner = _behind_decorators(function.func)
        return functools.partial(inner, *function.args, **function.keywords)
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is None or not _passes_on_all(function):
        return function
    if inspect.ismethod(function):
        wrapped = types.MethodType(wrapped, function.__self__)
    return _behind_decorators(wrapped)


def _passes_on_all(decorated: Callable[..., Any]) -> bool:
    """Return whether a decorated function takes `*args, **kwargs` and nothing else."""
    try:
        parameters = inspect.signature(decorated, follow_wrapped=False).parameters.values()
    except ValueError:  # a builtin, such as functools.cache
        return True
    kinds = [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]
    return [parameter.kind for parameter in parameters] == kinds


def _check_by_name(parameters: Mapping[str, inspect.Parameter], given: set[str]) -> None:
    """Check that what a function gets, or needs, can be passed by name."""
    for name, p in parameters.items():
        is_needed = p.default is p.empty or name in given
        if p.kind is p.POSITIONAL_ONLY and is_needed:
            raise InvalidArgument(
                "train", "arguments that can be passed by name", f"{name!r}, by position only"
            )


def _check_accepted(parameters: Mapping[str, inspect.Parameter], given: set[str]) -> None:
    """Check that a function accepts these names."""
    kinds = inspect.Parameter
    if any(p.kind is kinds.VAR_KEYWORD for p in parameters.values()):
        return
    by_name = (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    named = [name for name, p in parameters.items() if p.kind in by_name]
    for name in sorted(given.difference(named)):
        accepted = ", ".join(named) or "no arguments"
        hint = did_you_mean(name, set(named) - given)
        raise InvalidArgument(
            "train", f"a function that accepts {name!r}", f"one that accepts {accepted}", hint
        )


def _check_required(
    parameters: Mapping[str, inspect.Parameter], given: set[str], conditional: Collection[str]
) -> None:
    """Check that a function gets each argument that it needs, in each trial."""
    for name, p in parameters.items():
        if p.default is not p.empty or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            continue
        if name not in given:
            raise InvalidArgument(
                "train",
                f"a hyperparameter for its argument {name!r}",
                ", ".join(sorted(given)) or "none",
                f"add {name!r} or give the argument a default",
            )
        if name in conditional:
            raise InvalidArgument(
                "train",
                f"a default for its argument {name!r}, which only some trials get (when=)",
                "none",
                f"write {name}=None, or the value that those without it use",
            )


def _without_value(train: Callable[..., Any]) -> str:
    """Return what a function is that returns a coroutine or a generator; '' for any other."""
    for function in (train, type(train).__call__):  # the latter of an object
        if inspect.iscoroutinefunction(function):
            return "an async function"
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            return "one with yield, a generator"
    return ""


def pickle_function(
    train: Callable[..., Any], argument: str = "train", take: TakeBuffer | None = None
) -> bytes:
    """Return a function pickled for the executors.

    Args:
        train: The function.
        argument: The argument's name, for messages.
        take: The `buffer_callback` of `pickle.Pickler`.

    Raises:
        InvalidArgument: The function cannot be pickled, refers to the session or its SparkContext,
            or is too large; the message names the variable.
    """
    try:
        return _dump(train, take)
    except Exception as error:
        found = next(_unpicklable(_referred(train), take), None)
        if found is None:
            reason = _reason(error)
            raise InvalidArgument(argument, "a function that can be pickled", reason) from None
        name, value, cause = found
        got = f"one that refers to {name!r} ({type(value).__name__}): {_reason(cause)}"
        where = "the train function" if argument == "train" else argument
        hint = _remedy(cause) or f"make {name!r} inside {where}"
        raise InvalidArgument(argument, "a function that can be pickled", got, hint) from None


def pickle_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any], take: TakeBuffer | None = None
) -> bytes:
    """Return the arguments of a call, pickled as the pair of `args` and `kwargs`.

    Args:
        args: The positional arguments.
        kwargs: The keyword arguments.
        take: The `buffer_callback` of `pickle.Pickler`.

    Raises:
        InvalidArgument: An argument cannot be pickled, or they are too large; the message names it.
    """
    try:
        return _dump((args, kwargs), take)
    except Exception as error:
        named = [*((f"args[{i}]", value) for i, value in enumerate(args)), *kwargs.items()]
        name, _, cause = next(_unpicklable(named, take), ("arguments", None, error))
        large = "pass an array of numpy, which may be larger, or the path of a file"
        hint = large if isinstance(cause, _TooLarge) else _remedy(cause)
        raise InvalidArgument(name, "a value that can be pickled", _reason(cause), hint) from None


def sizes_of_variables(train: Callable[..., Any]) -> dict[str, int]:
    """Return the pickled size, in bytes, of each variable that a function refers to.

    The largest comes first. Variables that cannot be pickled or are too large are left out:
    `pickle_function` names them.
    """
    sizes = {}
    for name, value in _referred(train):
        with contextlib.suppress(Exception):
            sizes[name] = len(_dump(value))
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def required_arguments(train: Callable[..., Any]) -> list[str]:
    """Return the named arguments without a default, which a search has to pass."""
    try:
        parameters = signature_of(train).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return []
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.default is p.empty and p.kind in named]


class _TooLarge(Exception):
    def __str__(self) -> str:
        return f"more than {LARGEST_FUNCTION >> 20} MiB; every slot would get a copy of it"


class _NotForTrials(Exception):
    """An object that can be pickled, but not used in trials.

    Args:
        reason: The reason.
        remedy: What to use instead.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__(reason)


class _LimitedBuffer(io.BytesIO):
    """Raises as soon as pickled data exceeds the limit, rather than after gigabytes."""

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > LARGEST_FUNCTION:
            raise _TooLarge
        return super().write(data)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Sends functions with their source, and modules that are registered for it by value.

    See `user_sources` and `SentModules`. Refuses objects of Spark that can be pickled but not used
    in trials.
    """

    def __init__(self, buffer: io.BytesIO, take: TakeBuffer | None) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=take)
        self._modules = SentModules()

    def reducer_override(self, value: Any) -> Any:
        _refuse_of_spark(type(value))
        if type(value) is types.ModuleType and is_sent(vars(value)):
            return self._modules.reduce(value)
        if type(value) is functools._lru_cache_wrapper and not _is_imported(value):
            return cached, (value.__wrapped__, value.cache_parameters())
        reduced = super().reducer_override(value)
        if type(value) is not types.FunctionType or reduced is NotImplemented:
            return reduced  # NotImplemented: executors import it
        make, arguments, *state = reduced
        if is_sent(value.__globals__):
            code, _, *others = arguments
            arguments = (code, self._modules.globals_of(value), *others)
        try:
            number, lines = _source(value)
        except (OSError, TypeError, SyntaxError, tokenize.TokenError):  # made by exec, for example
            return (make, arguments, *state)
        source = value.__code__.co_filename, number, lines
        return (function_with_source, (*source, make, arguments), *state)


def _is_imported(function: Any) -> bool:
    """Return whether executors import a function, so that a pickle has its name only."""
    found: Any = sys.modules.get(function.__module__)
    for part in getattr(function, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    module = function.__module__
    return found is function and module != "__main__" and not is_sent({"__name__": module})


def _refuse_of_spark(kind: type) -> None:
    """Raise for the type of an object of Spark that can be pickled but not used in trials."""
    # Not imported here: the modules are loaded already if there are such objects.
    connect = sys.modules.get("pyspark.sql.connect.session")  # needs gRPC
    if connect is not None and issubclass(kind, connect.SparkSession):
        raise TypeError("the SparkSession exists on the driver only")
    pyspark = sys.modules.get("pyspark")  # the client of Spark Connect has neither
    if issubclass(kind, getattr(pyspark, "Broadcast", ())):
        raise _NotForTrials(
            "Spark sends no broadcasts to trials",
            "outside the function, assign its value to a variable: table = broadcast.value",
        )
    if issubclass(kind, getattr(pyspark, "Accumulator", ())):
        raise _NotForTrials(
            "trials cannot add to an accumulator of Spark", "return the number instead"
        )


def _source(function: types.FunctionType) -> tuple[int, list[str]]:
    """Return the number of a function's first line, from 1, and its lines.

    `inspect.getsourcelines` would return those of the function that it wraps.
    """
    lines, index = inspect.findsource(function)
    return index + 1, inspect.getblock(lines[index:])


def _dump(value: Any, take: TakeBuffer | None = None) -> bytes:
    buffer = _LimitedBuffer()
    _Pickler(buffer, take).dump(value)
    return buffer.getvalue()


def _unpicklable(
    named: Iterable[tuple[str, Any]], take: TakeBuffer | None
) -> Iterator[tuple[str, Any, Exception]]:
    for name, value in named:
        try:
            _dump(value, take)
        except Exception as error:
            yield name, value, error


def _referred(train: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the variables of a function by name: closure, globals, defaults, and its object."""
    if isinstance(train, functools.partial):
        with contextlib.suppress(TypeError, ValueError):
            bound = inspect.signature(train.func).bind_partial(*train.args, **train.keywords)
            yield from bound.arguments.items()
        yield from _referred(train.func)
        return
    if getattr(train, "__self__", None) is not None:
        yield "self", train.__self__  # type: ignore[attr-defined]  # a bound method
    function = getattr(train, "__func__", train)
    if not inspect.isfunction(function):
        yield from getattr(train, "__dict__", {}).items()
        return
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield from _referred(wrapped)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            if not any(cell.cell_contents is own for own in (function, train, wrapped)):
                yield name, cell.cell_contents
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, parameter in inspect.signature(function, follow_wrapped=False).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            yield name, parameter.default


def _global_names(code: types.CodeType) -> Iterator[str]:
    """Yield the names in a function and in the functions and comprehensions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _remedy(error: Exception) -> str:
    return error.remedy if isinstance(error, _NotForTrials) else ""


def _reason(error: Exception) -> str:
    if "CONTEXT_ONLY_VALID_ON_DRIVER" in str(error):
        return "the SparkContext exists on the driver only"
    lines = str(error).strip().splitlines()
    return shown(lines[0], 200).strip("'\"") if lines else type(error).__name__
