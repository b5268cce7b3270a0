"""Names of modules, and the places where they are found; nothing is imported for it."""

from __future__ import annotations

import importlib.machinery
import pkgutil
import sys
import types
from collections.abc import Iterable
from pathlib import Path

_INSTALLED = {"site-packages", "dist-packages"}
_INTERNAL = ("core", "python", "src")  # names of internal modules of large packages


def name_of(module: types.ModuleType) -> str:
    """Return a module's name; reading an attribute of a lazy module would import it."""
    name = object.__getattribute__(module, "__dict__").get("__name__")
    return name if isinstance(name, str) else ""


def public_part(module: str) -> str:
    """Return the part of a module's name before its first internal part."""
    parts = module.split(".")
    internal = (n for n, part in enumerate(parts) if part.startswith("_") or part in _INTERNAL)
    return ".".join(parts[: next(internal, None)])


def absolute_name(name: str, level: int, package: str) -> str:
    """Return the name of a module that is imported relative to a package."""
    if not level:
        return name
    parts = package.split(".")
    return ".".join(filter(None, [*parts[: len(parts) - level + 1], name]))


def top_of(module: str) -> str:
    """Return the top-level package of a module, or the module."""
    return module.partition(".")[0]


def is_not_installed(top: str) -> bool:
    """Return whether a top-level module is found outside the folders of installed packages."""
    spec = find_module(top)
    if spec is None:  # a module that was loaded from a file
        loaded = sys.modules.get(top)
        places = [] if loaded is None else [getattr(loaded, "__file__", None)]
    else:
        places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    parts = {part for place in places for part in Path(str(place)).parts}
    return bool(places) and _INSTALLED.isdisjoint(parts)


def find_module(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return the spec of a module; imports nothing, unlike `importlib.util.find_spec`."""
    spec, path = None, None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}".lstrip(".")
        if path is None:
            finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
            spec = next(filter(None, (find(name, None) for find in finders if find)), None)
        else:
            spec = _find_in(path, name)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec


def _find_in(path: Iterable[str], module: str) -> importlib.machinery.ModuleSpec | None:
    """Return the spec of a module of a package; `PathFinder` needs the package imported."""
    folders: list[str] = []
    for entry in path:
        importer = pkgutil.get_importer(entry)
        find = getattr(importer, "find_spec", None)
        spec: importlib.machinery.ModuleSpec | None = find(module) if find else None
        if spec is not None and spec.loader is not None:
            return spec
        folders += (spec and spec.submodule_search_locations) or ()
    if not folders:
        return None
    namespace = importlib.machinery.ModuleSpec(module, None, is_package=True)
    namespace.submodule_search_locations = folders
    return namespace
