"""Search spaces and search algorithms, as pure values and functions.

Nothing here knows Spark, TensorFlow, files, the clock or a global random number: an algorithm is an
object with `ask` and `tell` (see `search.searcher`), and `search.searcher.drive` runs one against a
plain function.
"""

from search.direction import Direction, Directions
from search.errors import ExperimentError, InvalidArgument, NothingAllowed
from search.evolution.generational import DifferentialEvolution
from search.evolution.nsga2 import NSGA2, NSGA2Search
from search.evolution.population_based import PopulationBasedTraining
from search.evolution.steady_state import SteadyStateEvolution
from search.grid import GridSearch, PointSearch
from search.grouped import GroupedSearch
from search.random_search import RandomSearch
from search.searcher import Algorithm, Problem, Searcher, drive
from search.sequential.bayesian import BayesianOptimization, BayesianSearch
from search.sequential.regularized_evolution import RegularizedEvolution, RegularizedEvolutionSearch
from search.sequential.reinforce import Reinforce, ReinforceSearch
from search.space.spaces import Choice, Domain, Float, Integer, Space
from search.stopping import (
    MedianStopping,
    Patience,
    StoppingJudge,
    StoppingRule,
    SuccessiveHalving,
    Threshold,
)
from search.trial import Evaluated, Failure, Outcome, Trial

__all__ = [
    "NSGA2",
    "Algorithm",
    "BayesianOptimization",
    "BayesianSearch",
    "Choice",
    "DifferentialEvolution",
    "Direction",
    "Directions",
    "Domain",
    "Evaluated",
    "ExperimentError",
    "Failure",
    "Float",
    "GridSearch",
    "GroupedSearch",
    "Integer",
    "InvalidArgument",
    "MedianStopping",
    "NSGA2Search",
    "NothingAllowed",
    "Outcome",
    "Patience",
    "PointSearch",
    "PopulationBasedTraining",
    "Problem",
    "RandomSearch",
    "RegularizedEvolution",
    "RegularizedEvolutionSearch",
    "Reinforce",
    "ReinforceSearch",
    "Searcher",
    "Space",
    "SteadyStateEvolution",
    "StoppingJudge",
    "StoppingRule",
    "SuccessiveHalving",
    "Threshold",
    "Trial",
    "drive",
]
