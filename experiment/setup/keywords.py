"""The fields of `Settings` as keyword arguments of the public calls: types, signature and help.

Type checkers accept keyword arguments by name only from a TypedDict that is written out, so the
names and types of `Settings` are repeated here; the defaults and the documentation are not.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, TypedDict, TypeVar

from experiment.results.result import Result, Results
from experiment.setup.settings import Isolation, Settings
from search.checks import plain
from search.errors import WrongCall, did_you_mean, prefixed
from search.stopping.rules import StoppingRule
from search.trial import FailureKind
from spark_jobs.strategies.settings import Strategy, StrategyName
from spark_jobs.trial.precision import Precision

F = TypeVar("F", bound=Callable[..., Any])

_ENTRY = re.compile(r"^    (\*{0,2}\w+): .*(?:\n        .*)*", re.MULTILINE)


class CommonKeywords(TypedDict, total=False):
    """The settings that every call accepts."""

    description: str
    precision: Precision | None
    logdir: str | os.PathLike[str] | None
    gpus_per_trial: int | None
    timeout: float | None
    grace: float
    deadline: float | None
    startup_timeout: float | None
    retries: int
    retry_on: Sequence[FailureKind]
    seed: int | None
    isolation: Isolation


class ExecutorKeywords(CommonKeywords, total=False):
    """The settings that `experiment.executor` accepts beside its own arguments."""

    parallelism: int | None
    trials_per_gpu: int


class TrainingKeywords(CommonKeywords, total=False):
    """The settings that `experiment.distributed_training` accepts beside its own arguments."""

    name: str | None
    direction: str | Mapping[str, str]
    optimization_key: str | None
    resume: str | os.PathLike[str] | Result | Results | None
    stopping: StoppingRule | Sequence[StoppingRule] | None
    strategy: Strategy | StrategyName | None
    preload: Sequence[str] | None
    verbose: Literal[0, 1, 2]


class MeasuringKeywords(TypedDict, total=False):
    """The settings that `experiment.plan_training` accepts beside its own arguments."""

    description: str
    precision: Precision | None
    logdir: str | os.PathLike[str] | None
    gpus_per_trial: int | None
    timeout: float | None
    startup_timeout: float | None
    seed: int | None
    preload: Sequence[str] | None
    verbose: Literal[0, 1, 2]


class SearchKeywords(ExecutorKeywords, total=False):
    """The settings of a search without `direction`, for calls with an argument of that name."""

    name: str | None
    workers_per_trial: int | tuple[int, int]
    strategy: Strategy | StrategyName | None
    optimization_key: str | None
    repeats: int
    resume: str | os.PathLike[str] | Result | Results | None
    stopping: StoppingRule | Sequence[StoppingRule] | None
    target: float | None
    max_failures: int | None
    preload: Sequence[str] | None
    verbose: Literal[0, 1, 2]


class Keywords(SearchKeywords, total=False):
    """All settings."""

    direction: str | Mapping[str, str]


def takes_settings(function: F, keywords: Any = Keywords) -> F:
    """Show fields of `Settings` in signature and docstring of a function that takes `**settings`.

    So `help` and completion have them, and they are documented once.

    Args:
        function: The function; the entries of the fields replace `**settings` in its docstring.
        keywords: The TypedDict with the names of the fields that it accepts.
    """
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    shared = [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type
        )
        for f in fields(Settings)
        if f.name not in signature.parameters and f.name in keywords.__optional_keys__
    ]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            shown_signature.bind(*args, **kwargs)
        except TypeError as error:
            known = shown_signature.parameters
            unknown = next((name for name in kwargs if name not in known), None)
            hint = prefixed("; ", did_you_mean(unknown, known))
            raise WrongCall(f"{function.__name__}(): {error}{hint}") from None
        return function(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})

    shown_signature = signature.replace(parameters=[*own, *shared])
    call.__signature__ = shown_signature  # type: ignore[attr-defined]  # what inspect.signature reads
    call.__doc__ = _documented(function, [parameter.name for parameter in shared])
    return call  # type: ignore[return-value]  # the same function, shown in full


def entries(docstring: str) -> dict[str, str]:
    """Return the entry of each argument in a docstring: its name, a colon, its description.

    Args:
        docstring: A docstring in Google style, without the source's indentation.
    """
    return {match[1]: match[0] for match in _ENTRY.finditer(docstring)}


def _documented(function: Callable[..., Any], names: Sequence[str]) -> str | None:
    """Return a function's docstring with the entries of settings in place of `**settings`."""
    docstring = inspect.getdoc(function)
    placeholder = entries(docstring or "").get("**settings")
    if docstring is None or placeholder is None:  # python -OO drops docstrings
        return docstring
    return docstring.replace(placeholder, "\n".join(_DOCUMENTED[name] for name in names))


_DOCUMENTED = entries(inspect.getdoc(Settings) or "")
