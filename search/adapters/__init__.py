"""Search algorithms of other libraries, driven through our ask and tell.

The libraries are imported when one of these is made, so nobody needs those that he does not use.
"""

from search.adapters.deap import DeapSearcher
from search.adapters.dehb import DehbSearcher
from search.adapters.nevergrad import NevergradSearcher
from search.adapters.optuna import OptunaSearcher

__all__ = ["DeapSearcher", "DehbSearcher", "NevergradSearcher", "OptunaSearcher"]
