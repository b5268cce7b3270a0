"""Run one search as a job: `spark-submit spark_jobs/submit.py --train my_module:train ...`.

Also `python -m spark_jobs.submit`. For the arguments see `experiment.cli.job`, and `--help`.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _find_packages() -> None:
    """Let Python import from files shipped with the job, then from the current folder.

    spark-submit puts the folder of this file first on the path, where `import calls` or
    `import data` of other code would find our modules, unless the file is alone there, as in the
    current folder of YARN's cluster mode. The entries of PYTHONPATH, such as --py-files, stay.
    """
    home = os.path.dirname(os.path.realpath(__file__))  # Python follows links, too
    ours = os.path.basename(home) == "spark_jobs"
    sys.path[:] = [f for f in sys.path if os.path.realpath(f or ".") != home]
    shipped = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    first = next((i for i, folder in enumerate(sys.path) if folder not in shipped), 0)
    for folder in (os.path.dirname(home) if ours else home, os.getcwd()):
        if folder not in sys.path and not (ours and folder == home):
            sys.path.insert(first, folder)


def _check_package() -> None:
    """Exit with the path that hides the framework's package, whose name is a common word."""
    spec = importlib.util.find_spec("experiment")
    if spec is None:
        return
    folders = spec.submodule_search_locations or []
    # Not by an import, which would run it.
    if importlib.machinery.PathFinder.find_spec("experiment.run_files", folders) is None:
        sys.exit(
            f"{folders[0] if folders else spec.origin} hides the package 'experiment' of the "
            "framework: rename it, or take its folder off Python's path"
        )


if __name__ == "__main__":
    _find_packages()
    _check_package()
    from experiment.cli.job import main

    sys.exit(main(sys.argv[1:]))
