"""The check that no other file hides one of our packages, whose names are common words."""

import importlib.util
import pathlib


def check_neighbours() -> None:
    """Raise ImportError if another file hides one of our packages."""
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
