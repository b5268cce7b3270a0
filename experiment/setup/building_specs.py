"""From the arguments of a call to its `SearchSpec`: what calls by any algorithm have in common."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from experiment.results.warned import warn_user
from experiment.setup.resuming import manifest_of
from experiment.setup.settings import Settings
from experiment.setup.slot_count import SlotsAsked
from experiment.setup.specification import SearchSpec
from experiment.setup.warm_start import Runs, known_of, runs_of
from search.algorithms import Grid
from search.errors import InvalidArgument, shown
from search.searcher import Algorithm, Problem
from search.space.domain_dicts import numbers_in_texts
from search.space.points import read_first_points
from search.space.sampling import check_constraint
from search.space.spaces import Constraint, Space
from search.values import to_json

_WANTED = "a to_json() that returns a JSON-serialisable dict"


def spec_of_algorithm(
    algorithm: Algorithm,
    *,
    call: str,
    spark: Any,
    train: Callable[..., Any],
    space: Space,
    settings: Settings,
    samples: int | None = None,
    points: Iterable[Mapping[str, Any]] = (),
    warm_start: Runs = (),
) -> SearchSpec:
    """Return the search of a space by an algorithm.

    Args:
        algorithm: Makes the searcher.
        call: The name of the public function.
        spark: The user's SparkSession.
        train: The train function.
        space: The search space.
        settings: The settings that all searches share.
        samples: How many trials; None for algorithms that know.
        points: Configurations to try first.
        warm_start: Runs to learn from.

    Raises:
        InvalidArgument: Bad input.
    """
    seed = seed_of(settings)
    if not isinstance(algorithm, Grid):  # which asks for each of its points
        check_constraint(space, random.Random(seed))
    runs = runs_of(warm_start)
    slots = SlotsAsked(spark, samples, settings)
    problem = Problem(
        space=space,
        rng=random.Random(seed),
        direction=settings.goal,
        samples=samples,
        # With numbers of their own, so that what is drawn for a point can be said the next time.
        points=read_first_points(space, points, random.Random(f"points of {seed}")),
        known=known_of(runs, space, settings),
        slots=slots,
    )
    searcher = algorithm.start(problem)
    if not all(hasattr(searcher, name) for name in ("total", "finished", "ask", "tell")):
        expected = "a start() that returns a search.searcher.Searcher"
        raise InvalidArgument("searcher", expected, shown(searcher))
    arguments = _settings_of(algorithm)
    if samples is not None:
        arguments["samples"] = samples
    if problem.points:
        arguments["points"] = [_as_json(point) for point in problem.points]
    if runs:
        arguments["warm_start"] = runs
    return SearchSpec(
        call=call,
        spark=spark,
        train=train,
        settings=settings,
        seed=seed,
        searcher=searcher,
        space=space,
        algorithm=arguments,
        known=problem.known,
        slots=slots.number,
    )


def check_algorithm(searcher: object) -> None:
    """Make sure that this is an algorithm.

    Raises:
        InvalidArgument: It is not.
    """
    for method in ("start", "to_json"):
        if isinstance(searcher, type) or not callable(getattr(searcher, method, None)):
            expected = "a search algorithm, such as experiment.RegularizedEvolution()"
            raise InvalidArgument("searcher", expected, shown(searcher))


def read_space(
    bounds: Mapping[str, Any], constraint: Constraint | None, name: str = "bounds"
) -> Space:
    """Return the space that a user has written, and warn of numbers in texts.

    Args:
        bounds: Hyperparameter to domain.
        constraint: Which configurations may be tried; None for all.
        name: The argument that had the bounds.

    Raises:
        InvalidArgument: It is no space.
    """
    space = Space.of_bounds(bounds, constraint, name)
    warn_of_texts(name, bounds)
    return space


def warn_of_texts(name: str, bounds: Mapping[str, Any]) -> None:
    """Warn of bounds that are numbers in texts.

    Args:
        name: The argument that had the bounds.
        bounds: Hyperparameter to domain.
    """
    for sentence in numbers_in_texts(name, bounds):
        warn_user(sentence)


def seed_of(settings: Settings) -> int:
    """Return the user's seed, that of the run to resume, or one drawn now."""
    if settings.seed is not None:
        return settings.seed
    if settings.resume is not None:
        return manifest_of(settings.resume).seed
    return secrets.randbits(32)


def _settings_of(algorithm: Algorithm) -> dict[str, Any]:
    """Return what an algorithm says of itself, as the manifest will have it."""
    told: Any = algorithm.to_json()
    try:
        settings = msgspec.json.decode(json.dumps(told, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        got = f"{shown(told)}: {error}"
        raise InvalidArgument("searcher", _WANTED, got) from None
    if not isinstance(settings, dict):
        raise InvalidArgument("searcher", _WANTED, shown(told))
    return settings


def _as_json(point: Mapping[str, Any]) -> dict[str, Any]:
    return {name: to_json(value) for name, value in point.items()}
