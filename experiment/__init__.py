"""Distributed experiments for TensorFlow on Spark.

    import experiment

    experiment.launch(spark, train, {"learning_rate": [0.001, 0.01], "dropout": [0.5, 0.6]})
    experiment.evolutionary_search(spark, train, {"learning_rate": [0.005, 0.00005]})

    experiment.load(run)            # the result of a run, finished or not
    experiment.tensorboard(run)     # TensorBoard on it

Inside a train function: `experiment.logdir()`, `report()`, `params()`, `keras_callbacks()`.
"""

import importlib.util
import pathlib


def _check_neighbours() -> None:
    """Say which file hides a package of ours: their names are common ones."""
    home = pathlib.Path(__file__).resolve().parent.parent
    for name in ("search", "spark_jobs"):
        spec = importlib.util.find_spec(name)
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or [])]
        found = next((pathlib.Path(place).resolve() for place in places if place), None)
        if found != home / name / "__init__.py":
            raise ImportError(
                f"package {name!r} of the experiment framework lies in {home / name}, but Python "
                f"finds {found}; rename that, or take its folder off sys.path"
            )


_check_neighbours()

from experiment import data  # noqa: E402  # after the check
from experiment.calls import evolutionary_search, launch, random_search  # noqa: E402
from experiment.loading import load  # noqa: E402
from experiment.result import Result, SearchFailed, TrialResult  # noqa: E402
from experiment.settings import Settings  # noqa: E402
from experiment.viewer import TensorBoard, tensorboard  # noqa: E402
from search.errors import ExperimentError, InvalidArgument  # noqa: E402
from search.space import Choice, Float, Integer  # noqa: E402
from spark_jobs.context import keras_callbacks, logdir, params, report  # noqa: E402

__all__ = [
    "Choice",
    "ExperimentError",
    "Float",
    "Integer",
    "InvalidArgument",
    "Result",
    "SearchFailed",
    "Settings",
    "TensorBoard",
    "TrialResult",
    "data",
    "evolutionary_search",
    "keras_callbacks",
    "launch",
    "load",
    "logdir",
    "params",
    "random_search",
    "report",
    "tensorboard",
]
