"""Builds the `SearchSpec` of a call by any algorithm."""

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
from search.evolution.population_based import PopulationTraining
from search.fidelity.hyperband import Hyperband
from search.grouped import Grouped
from search.searcher import Algorithm, Problem, Searcher, why_exhausted
from search.space.domain_dicts import numbers_in_texts
from search.space.points import completed_each, read_first_points
from search.space.sampling import check_constraint
from search.space.spaces import Constraint, Space
from search.stopping.racing import Racing
from search.stopping.rules import SuccessiveHalving
from search.values import Params

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
        algorithm: The algorithm, which creates the searcher.
        call: The name of the public function.
        spark: The user's SparkSession.
        train: The train function.
        space: The search space.
        settings: The settings that all searches share.
        samples: Number of trials; None for algorithms that determine it.
        points: Configurations to try first.
        warm_start: Runs whose trials are prior observations.

    Raises:
        InvalidArgument: Bad input.
    """
    seed = seed_of(settings)
    _check_resuming(algorithm, settings)
    # A grid checks each configuration, and `Grouped` the space of each group: in their union,
    # hyperparameters of one group meet the name of another.
    if not isinstance(algorithm, Grid | Grouped):
        check_constraint(space, random.Random(seed))
    runs = runs_of(warm_start)
    slots = SlotsAsked(spark, train, samples, settings)
    # A generator of its own, so that the same values are drawn when the run is resumed.
    drawing = random.Random(f"points of {seed}")
    complete = algorithm.completed_each if isinstance(algorithm, Grouped) else completed_each
    problem = Problem(
        space=space,
        rng=random.Random(seed),
        direction=settings.goal,
        samples=samples,
        points=read_first_points(space, points, drawing, complete=complete),
        known=known_of(runs, space, settings),
        slots=slots,
    )
    searcher = algorithm.start(problem)
    _check_searcher(searcher)
    arguments = _settings_of(algorithm)
    if samples is not None:
        arguments["samples"] = samples
    if problem.points:
        arguments["points"] = [Params(point).to_json() for point in problem.points]
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


def _check_resuming(algorithm: Algorithm, settings: Settings) -> None:
    """Check the settings of an algorithm whose trials resume from checkpoints of others."""
    innermost = algorithm.searcher if isinstance(algorithm, Grouped) else algorithm
    if not isinstance(innermost, Hyperband | PopulationTraining):
        return
    if settings.repeats > 1:
        expected = "1 where trials resume from checkpoints of others"
        raise InvalidArgument("repeats", expected, shown(settings.repeats))
    for rule in settings.rules:
        if isinstance(rule, SuccessiveHalving | Racing):
            expected = "a rule for trials that begin at different steps, such as MedianStopping()"
            raise InvalidArgument("stopping", expected, shown(rule))


def _check_searcher(searcher: Searcher) -> None:
    """Check a new searcher, which may be of a user's algorithm, and that it has trials."""
    if not all(hasattr(searcher, name) for name in ("total", "finished", "ask", "tell")):
        expected = "a start() that returns a search.searcher.Searcher"
        raise InvalidArgument("searcher", expected, shown(searcher))
    if type(searcher.total) is not int:  # numpy's have no form in JSON
        expected = "a searcher whose total is an int, the number of its trials"
        raise InvalidArgument("searcher", expected, f"one whose total is {shown(searcher.total)}")
    if (why := why_exhausted(searcher)) and not searcher.total:
        raise InvalidArgument("warm_start", "runs that leave configurations to try", why)


def check_algorithm(searcher: object) -> None:
    """Check that this is an algorithm.

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
    """Return the search space of a user's bounds, and warn of numbers given as strings.

    Args:
        bounds: Hyperparameter to domain.
        constraint: The constraint on configurations; None for none.
        name: The name of the argument with the bounds.

    Raises:
        InvalidArgument: The bounds are not a valid space.
    """
    space = Space.of_bounds(bounds, constraint, name)
    warn_of_texts(name, bounds)
    return space


def warn_of_texts(name: str, bounds: Mapping[str, Any]) -> None:
    """Warn of bounds that are numbers given as strings.

    Args:
        name: The name of the argument with the bounds.
        bounds: Hyperparameter to domain.
    """
    for sentence in numbers_in_texts(name, bounds):
        warn_user(sentence)


def seed_of(settings: Settings) -> int:
    """Return the user's seed, that of the run to resume, or a new random one."""
    if settings.seed is not None:
        return settings.seed
    if settings.resume is not None:
        return manifest_of(settings.resume).seed
    return secrets.randbits(32)


def _settings_of(algorithm: Algorithm) -> dict[str, Any]:
    """Return the type and arguments of an algorithm, for the manifest."""
    returned: Any = algorithm.to_json()
    try:
        settings = msgspec.json.decode(json.dumps(returned, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        got = f"{shown(returned)}: {error}"
        raise InvalidArgument("searcher", _WANTED, got) from None
    if not isinstance(settings, dict):
        raise InvalidArgument("searcher", _WANTED, shown(returned))
    return settings
