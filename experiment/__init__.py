"""Distributed experiments for TensorFlow on Spark.

    import experiment

    experiment.launch(spark, train, {"learning_rate": [0.001, 0.01], "dropout": [0.5, 0.6]})
    experiment.evolutionary_search(spark, train, {"learning_rate": [0.005, 0.00005]})
    experiment.distributed_training(spark, train, params, workers=4)    # one, on several slots
    experiment.submit(experiment.launch, spark, train, ...)     # in the background
    experiment.plan(experiment.launch, spark, train, ...)       # its demand on the cluster
    experiment.warm_up(spark, train)                            # imports before the first search
    experiment.executor(spark)      # a concurrent.futures.Executor on the same slots

    experiment.doctor(spark)        # problems that would make a search on this cluster fail

    experiment.load(run)            # the result of a run, finished or not
    experiment.tensorboard(run)     # TensorBoard for it

Inside a train function: `experiment.report()`, `logdir()`, `checkpoint_dir()`, `params()`,
`keras_callbacks()`; with several workers per trial `rank()`, `world_size()`, `all_reduce()`,
`broadcast()` and `barrier()`, too.
"""

import importlib.util
import pathlib

from experiment.version import __version__ as __version__


def _check_neighbours() -> None:
    """Raise ImportError if another file hides one of our packages, whose names are common."""
    home = pathlib.Path(__file__).resolve().parent.parent
    for name in ("search", "spark_jobs"):
        spec = importlib.util.find_spec(name)
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or [])]
        found = next((pathlib.Path(place).resolve() for place in places if place), None)
        if found != home / name / "__init__.py":
            raise ImportError(
                f"package {name!r} of the experiment framework is in {home / name}, but Python "
                f"finds {found}; rename that, or remove its folder from sys.path"
            )


_check_neighbours()

from experiment import data  # noqa: E402  # after the check
from experiment.background.executor import (  # noqa: E402
    CallFailed,
    ExecutorFailed,
    SparkExecutor,
    executor,
)
from experiment.background.handle import Handle, submit  # noqa: E402
from experiment.background.warm_up import warm_up  # noqa: E402
from experiment.calls import (  # noqa: E402
    bayesian_search,
    evolutionary_search,
    launch,
    population_based_training,
    random_search,
    run,
    search_each,
)
from experiment.diagnosis.diagnosis import Diagnosis, Finding  # noqa: E402
from experiment.diagnosis.doctor import doctor  # noqa: E402
from experiment.display.tensorboard_server import TensorBoard, tensorboard  # noqa: E402
from experiment.planning.plan import Plan, plan  # noqa: E402
from experiment.results.result import Result, Results, SearchFailed  # noqa: E402
from experiment.results.trial_result import TrialResult  # noqa: E402
from experiment.run_files.journal import JournalDamaged  # noqa: E402
from experiment.run_files.loading import load  # noqa: E402
from experiment.setup.settings import Settings  # noqa: E402
from experiment.training import distributed_training  # noqa: E402
from search.adapters import (  # noqa: E402
    DeapSearcher,
    DehbSearcher,
    NevergradSearcher,
    OptunaSearcher,
)
from search.errors import ExperimentError, InvalidArgument  # noqa: E402
from search.evolution.nsga2 import NSGA2  # noqa: E402
from search.sequential.bayesian import BayesianOptimization  # noqa: E402
from search.sequential.regularized_evolution import RegularizedEvolution  # noqa: E402
from search.sequential.reinforce import Reinforce  # noqa: E402
from search.space.spaces import Choice, Float, Integer  # noqa: E402
from search.stopping import (  # noqa: E402
    MedianStopping,
    Patience,
    SuccessiveHalving,
    Threshold,
)
from search.trial import Failure  # noqa: E402
from spark_jobs.trial.collectives import all_reduce, barrier, broadcast  # noqa: E402
from spark_jobs.trial.context import (  # noqa: E402
    TrialStopped,
    checkpoint_dir,
    keras_callbacks,
    logdir,
    params,
    rank,
    report,
    world_size,
)

__all__ = [
    "NSGA2",
    "BayesianOptimization",
    "CallFailed",
    "Choice",
    "DeapSearcher",
    "DehbSearcher",
    "Diagnosis",
    "ExecutorFailed",
    "ExperimentError",
    "Failure",
    "Finding",
    "Float",
    "Handle",
    "Integer",
    "InvalidArgument",
    "JournalDamaged",
    "MedianStopping",
    "NevergradSearcher",
    "OptunaSearcher",
    "Patience",
    "Plan",
    "RegularizedEvolution",
    "Reinforce",
    "Result",
    "Results",
    "SearchFailed",
    "Settings",
    "SparkExecutor",
    "SuccessiveHalving",
    "TensorBoard",
    "Threshold",
    "TrialResult",
    "TrialStopped",
    "all_reduce",
    "barrier",
    "bayesian_search",
    "broadcast",
    "checkpoint_dir",
    "data",
    "distributed_training",
    "doctor",
    "evolutionary_search",
    "executor",
    "keras_callbacks",
    "launch",
    "load",
    "logdir",
    "params",
    "plan",
    "population_based_training",
    "random_search",
    "rank",
    "report",
    "run",
    "search_each",
    "submit",
    "tensorboard",
    "warm_up",
    "world_size",
]


def __dir__() -> list[str]:
    """Return the public names, without those of subpackages."""
    return __all__
