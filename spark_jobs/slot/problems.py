"""Problems that a slot tells the driver through Spark's error."""

from __future__ import annotations

from collections.abc import Callable

PROBLEM = "experiment: "
"""Prefix of the line, inside Spark's error, with the reason why a slot could not start.

If the reason does not begin with `host`, it lacks the host, which Spark's driver knows.
"""


def import_problem() -> Callable[[ModuleNotFoundError], str]:
    """Return a function that explains why an executor cannot import our packages.

    It is pickled by value, since it runs where our packages cannot be imported.
    """

    def problem(error: ModuleNotFoundError) -> str:
        import sys

        package = (error.name or "").partition(".")[0]
        found = getattr(sys.modules.get(package), "__file__", None)
        if package in ("search", "spark_jobs") and found:
            return (
                f"{found} hides the package {package!r} of the framework, or is of another "
                "version; rename it if it is yours, or install the driver's version on every "
                "executor"
            )
        advice = "install this package and its dependencies on every executor"
        return f"no module named {error.name!r}; {advice}"

    return problem
