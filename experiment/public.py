"""The public names of the framework, which `import experiment` offers."""

from __future__ import annotations

from experiment import data
from experiment.background.executor import (
    CallFailed,
    ExecutorFailed,
    SparkExecutor,
    executor,
)
from experiment.background.handle import Handle, submit
from experiment.background.warm_up import warm_up
from experiment.calls import (
    bayesian_search,
    evolutionary_search,
    launch,
    random_search,
    run,
)
from experiment.diagnosis.diagnosis import Diagnosis, Finding
from experiment.diagnosis.doctor import doctor
from experiment.display.tensorboard_server import TensorBoard, tensorboard
from experiment.group_searches import search_each
from experiment.large_batches.batch_size import BatchSize, auto_batch_size
from experiment.large_batches.rate_range import RateCurve, learning_rate_range
from experiment.large_batches.rates import linear_scaling, warmed_up
from experiment.partial_trainings import hyperband_search, population_based_training
from experiment.planning.plan import Plan, plan
from experiment.planning.planning_training import plan_training
from experiment.planning.training_plan import Exchange, TrainingPlan, TrainingSpeed
from experiment.results.result import Result, Results, SearchFailed
from experiment.results.trial_result import TrialResult
from experiment.run_files.journal import JournalDamaged
from experiment.run_files.loading import load
from experiment.setup.settings import Settings
from experiment.training import distributed_training
from search.adapters import (
    DeapSearcher,
    DehbSearcher,
    NevergradSearcher,
    OptunaSearcher,
)
from search.errors import ExperimentError, InvalidArgument
from search.evolution.nsga2 import NSGA2
from search.fidelity.hyperband import Hyperband
from search.sequential.bayesian import BayesianOptimization
from search.sequential.regularized_evolution import RegularizedEvolution
from search.sequential.reinforce import Reinforce
from search.space.spaces import Choice, Float, Integer
from search.stopping.racing import StudentRacing, WilcoxonRacing
from search.stopping.rules import (
    MedianStopping,
    Patience,
    SuccessiveHalving,
    Threshold,
)
from search.trial import Failure
from spark_jobs.strategies.settings import Codistillation, Downpour, Jax, Mirrored
from spark_jobs.trial.collectives import all_reduce, barrier, broadcast
from spark_jobs.trial.context import (
    TrialStopped,
    checkpoint_dir,
    logdir,
    max_steps,
    params,
    rank,
    repeat,
    report,
    shard,
    world_size,
)
from spark_jobs.trial.hogwild import hogwild
from spark_jobs.trial.keras_callbacks import keras_callbacks

__all__ = [
    "NSGA2",
    "BatchSize",
    "BayesianOptimization",
    "CallFailed",
    "Choice",
    "Codistillation",
    "DeapSearcher",
    "DehbSearcher",
    "Diagnosis",
    "Downpour",
    "Exchange",
    "ExecutorFailed",
    "ExperimentError",
    "Failure",
    "Finding",
    "Float",
    "Handle",
    "Hyperband",
    "Integer",
    "InvalidArgument",
    "Jax",
    "JournalDamaged",
    "MedianStopping",
    "Mirrored",
    "NevergradSearcher",
    "OptunaSearcher",
    "Patience",
    "Plan",
    "RateCurve",
    "RegularizedEvolution",
    "Reinforce",
    "Result",
    "Results",
    "SearchFailed",
    "Settings",
    "SparkExecutor",
    "StudentRacing",
    "SuccessiveHalving",
    "TensorBoard",
    "Threshold",
    "TrainingPlan",
    "TrainingSpeed",
    "TrialResult",
    "TrialStopped",
    "WilcoxonRacing",
    "all_reduce",
    "auto_batch_size",
    "barrier",
    "bayesian_search",
    "broadcast",
    "checkpoint_dir",
    "data",
    "distributed_training",
    "doctor",
    "evolutionary_search",
    "executor",
    "hogwild",
    "hyperband_search",
    "keras_callbacks",
    "launch",
    "learning_rate_range",
    "linear_scaling",
    "load",
    "logdir",
    "max_steps",
    "params",
    "plan",
    "plan_training",
    "population_based_training",
    "random_search",
    "rank",
    "repeat",
    "report",
    "run",
    "search_each",
    "shard",
    "submit",
    "tensorboard",
    "warm_up",
    "warmed_up",
    "world_size",
]
