"""Run one search as a job: `spark-submit spark_jobs/submit.py --train my_module:train ...`.

Also `python -m spark_jobs.submit`. See `experiment.cli.job`, and `--help`, for what it takes.
"""

import importlib.util
import os
import sys


def _find_packages() -> None:
    """Let Python find what is shipped with the job, then what is in the current folder.

    spark-submit puts the folder of this file first on the path, where `import calls` or
    `import data` of anyone would find a module of ours, unless this file lies there alone, as in
    the current folder of YARN's cluster mode. Left alone is what PYTHONPATH has, such as
    --py-files.
    """
    home = os.path.dirname(os.path.realpath(__file__))  # links too: Python follows them
    ours = os.path.basename(home) == "spark_jobs"
    sys.path[:] = [f for f in sys.path if os.path.realpath(f or ".") != home]
    shipped = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    first = next((i for i, folder in enumerate(sys.path) if folder not in shipped), 0)
    for folder in (os.path.dirname(home) if ours else home, os.getcwd()):
        if folder not in sys.path and not (ours and folder == home):
            sys.path.insert(first, folder)


def _check_package() -> None:
    """Name the file that hides the framework's package: its name is a common word."""
    spec = importlib.util.find_spec("experiment")
    if spec is not None and spec.submodule_search_locations is None:
        sys.exit(
            f"{spec.origin} hides the package 'experiment' of the framework: rename this file, or "
            "take its folder off Python's path"
        )


if __name__ == "__main__":
    _find_packages()
    _check_package()
    from experiment.cli.job import main

    sys.exit(main(sys.argv[1:]))
