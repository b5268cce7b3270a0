"""Search algorithms of other libraries, driven through our ask and tell.

A library is imported when its searcher is created, so only those in use need to be installed.
"""

from search.adapters.deap import DeapSearcher
from search.adapters.dehb import DehbSearcher
from search.adapters.nevergrad import NevergradSearcher
from search.adapters.optuna import OptunaSearcher

__all__ = ["DeapSearcher", "DehbSearcher", "NevergradSearcher", "OptunaSearcher"]
