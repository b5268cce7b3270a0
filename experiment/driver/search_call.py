"""Makes a public call of a function that builds a search: the call builds and runs it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from experiment.driver.control import own_control
from experiment.driver.interrupts import Interrupts
from experiment.results.result import Result, Results
from experiment.results.trial_result import TrialResult
from experiment.setup.keywords import Keywords, takes_settings
from experiment.setup.specification import SearchSpec

P = ParamSpec("P")
R_co = TypeVar("R_co", Result, Results, TrialResult, covariant=True)


class SearchCall(Protocol[P, R_co]):
    """A call that runs a search.

    Attributes:
        spec: A function of the same arguments that returns the search without running it.
    """

    spec: Callable[P, SearchSpec]
    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the search to its end."""


def search_call(
    returns: type[R_co], keywords: Any = Keywords
) -> Callable[[Callable[P, SearchSpec]], SearchCall[P, R_co]]:
    """Make a public call of a function that returns the search; the docstring is the call's.

    Args:
        returns: The type that the call returns.
        keywords: The TypedDict of the settings that it accepts.
    """

    def decorate(build: Callable[P, SearchSpec]) -> SearchCall[P, R_co]:
        spec = takes_settings(build, keywords)

        @functools.wraps(spec)
        def call(*args: P.args, **kwargs: P.kwargs) -> R_co:
            # Late: it loads grpc and tensorboard, which neither `import experiment` nor a trial
            # needs.
            from experiment.driver.run_search import run_search

            with Interrupts(own_control()) as interrupts:
                search = spec(*args, **kwargs)
                return cast(R_co, search.returned(run_search(search, interrupts)))

        shown_signature = inspect.signature(spec).replace(return_annotation=returns.__name__)
        call.__signature__ = shown_signature  # type: ignore[attr-defined]  # for inspect.signature
        call.spec = spec  # type: ignore[attr-defined]  # functions take attributes
        return cast(SearchCall[P, R_co], call)

    return decorate
