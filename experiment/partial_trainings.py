"""The public calls whose trials are parts of trainings and resume from earlier trials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from experiment.driver.search_call import search_call
from experiment.results.result import Result
from experiment.setup.building_specs import read_space, spec_of_algorithm
from experiment.setup.keywords import SearchKeywords
from experiment.setup.settings import Settings
from experiment.setup.specification import SearchSpec
from search.evolution.population_based import PopulationTraining
from search.fidelity.hyperband import Hyperband
from search.space.spaces import Constraint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@search_call(Result)
def population_based_training(  # noqa: PLR0917  # their order is part of the call
    spark: SparkSession,
    train: Callable[..., Any],
    bounds: Mapping[str, Any],
    direction: str = "max",
    popsize: int = 10,
    generations: int = 10,
    *,
    quantile: float = 0.25,
    resample_probability: float = 0.25,
    points: Iterable[Mapping[str, Any]] = (),
    constraint: Constraint | None = None,
    **settings: Unpack[SearchKeywords],
) -> SearchSpec:
    """Train a population; the worst members copy the best, with changed hyperparameters.

    `popsize * (generations + 1)` trials. Each trains for a part of the whole: it resumes from the
    checkpoint in `experiment.checkpoint_dir()`, if there is one, and saves its own there. A trial
    that runs again, since its executor was lost, begins with the same checkpoint as before. A
    member whose trial failed or was stopped counts as the worst. Jaderberg et al., Population Based
    Training of Neural Networks (2017).

    Args:
        spark: A running SparkSession.
        train: See `launch`.
        bounds: The search space; see `evolutionary_search`.
        direction: 'max' or 'min'.
        popsize: Members, at least 2.
        generations: Generations after the initial one, at least 1.
        quantile: Share of [0, 0.5] of the members that are replaced by copies of the best, rounded
            up, but at most half of the members: 3 of 10 by default.
        resample_probability: Probability that a copied hyperparameter is drawn anew rather than
            perturbed.
        points: Configurations of the first members, at most `popsize`: dicts of hyperparameter to
            value. Hyperparameters left out are drawn; a value may lie between two steps of its
            domain.
        constraint: See `evolutionary_search`.
        **settings: See `experiment.Settings`.

    Returns:
        The result with all trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: An argument is invalid; raised before any Spark job starts.
        SearchFailed: The search could not go on, or every trial failed; `.result` has its trials.
    """
    training = PopulationTraining(
        popsize=popsize,
        generations=generations,
        quantile=quantile,
        resample_probability=resample_probability,
    )
    checked = Settings(direction=direction, **settings)
    return spec_of_algorithm(
        training,
        call="population_based_training",
        spark=spark,
        train=train,
        space=read_space(bounds, constraint),
        settings=checked,
        points=points,
    )


@search_call(Result)
def hyperband_search(  # noqa: PLR0917  # their order is part of the call
    spark: SparkSession,
    train: Callable[..., Any],
    bounds: Mapping[str, Any],
    direction: str = "max",
    max_epochs: int = 81,
    reduction: int = 3,
    *,
    min_epochs: int = 1,
    iterations: int = 1,
    model: str = "evolution",
    progressive: bool = False,
    points: Iterable[Mapping[str, Any]] = (),
    constraint: Constraint | None = None,
    **settings: Unpack[SearchKeywords],
) -> SearchSpec:
    """Search with many short trials, of which the best train longer: Hyperband without a barrier.

    Each bracket begins with configurations that train for few epochs, in the first one for about
    `min_epochs`; the best `1 / reduction` of them are promoted to new trials of `reduction` times
    as many epochs, and so on up to `max_epochs`. A promoted trial resumes from the checkpoint in
    `experiment.checkpoint_dir()`, if there is one, else it trains from the start. With
    `keras_callbacks()` in `model.fit`, `epochs=` may be `max_epochs` in all trials: the fit ends
    where the trial does. In a loop of your own, `report(step=epoch)` ends the trial, or the
    function asks for `experiment.max_steps()`.

    Args:
        spark: A running SparkSession.
        train: See `launch`.
        bounds: The search space; see `evolutionary_search`.
        direction: 'max' or 'min'.
        max_epochs: Epochs, or other steps that trials report, of a full training, at least 2.
        reduction: Ratio of the epochs of a trial to those of the trial that it resumes from, at
            least 2; one trial in so many is promoted.
        min_epochs: Minimum epochs of a trial. Trials have `max_epochs`, `max_epochs / reduction`
            and so on, rounded, down to this: with 100 and 2 they have 100, 33, 11 and 4.
        iterations: How often all brackets are run. With 81 epochs and a reduction of 3 an iteration
            has 206 trials of 143 configurations.
        model: The model that proposes configurations: 'evolution', differential evolution as in
            DEHB, or 'gaussian_process'.
        progressive: Whether trials train longer only while that changes the ranking of the best, as
            in PASHA; then an iteration has only the bracket with the shortest trials. It needs
            reports of the objective.
        points: See `evolutionary_search`.
        constraint: See `evolutionary_search`.
        **settings: See `experiment.Settings`.

    Returns:
        The result with all trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: An argument is invalid; raised before any Spark job starts.
        SearchFailed: The search could not go on, or every trial failed; `.result` has its trials.
    """
    algorithm = Hyperband(
        max_epochs=max_epochs,
        reduction=reduction,
        min_epochs=min_epochs,
        iterations=iterations,
        model=model,
        progressive=progressive,
    )
    checked = Settings(direction=direction, **settings)
    return spec_of_algorithm(
        algorithm,
        call="hyperband_search",
        spark=spark,
        train=train,
        space=read_space(bounds, constraint),
        settings=checked,
        points=points,
    )
