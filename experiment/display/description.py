"""Descriptions of a run and of failed trials, as Markdown for TensorBoard's text page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from experiment.results.text import as_arguments, hyperparameter, hyperparameters, printable
from experiment.results.trial_result import TrialResult
from experiment.run_files.manifest import Manifest
from search.errors import prefixed
from search.space.spaces import Choice, Domain, Space

_MOST_CHOICES = 20


def description(manifest: Manifest) -> str:
    """Return the call, the search space, the settings and the versions of a run."""
    parts = [f"# {escaped(manifest.name)}", escaped(manifest.description), _call(manifest)]
    if manifest.space is not None:
        space = Space.from_json(manifest.space)
        rows = [(name, *domain_in_words(domain)) for name, domain in space.items()]
        parts += ["## Space", _table(("hyperparameter", "values", "scale"), rows)]
    settings = {
        name: getattr(manifest, name)
        for name in (
            "direction",
            "optimization_key",
            "trials",
            "seed",
            "isolation",
            "precision",
            "timeout",
        )
    }
    if manifest.exhausted is not None:
        settings["trials"] = f"{manifest.trials}: {manifest.exhausted}"
    settings["repeats"] = manifest.repeats if manifest.repeats > 1 else None
    settings["preload"] = ", ".join(manifest.preload) or None
    settings["stopping"] = ", ".join(map(_as_code, manifest.stopping)) or None
    settings["prior observations"] = manifest.known or None
    settings |= {"Spark": f"{manifest.master}, {manifest.application}"}
    chosen = [(name, value) for name, value in settings.items() if value is not None]
    parts += ["## Settings", _table(("setting", "value"), chosen)]
    parts += ["## Versions", _table(("package", "version"), manifest.versions.items())]
    return "\n\n".join(part for part in parts if part)


def failure_description(trial: TrialResult) -> str:
    """Return the hyperparameters and the error of a failed trial."""
    params = f"Trial {trial.id}: {escaped(hyperparameters(trial.params))}"
    error = trial.error
    text = "" if error is None else error.traceback or error.message
    return f"{params}\n\n" + "\n".join("    " + line for line in text.splitlines())


def domain_in_words(domain: Domain) -> tuple[str, str]:
    """Return the values of a domain, and its scale and conditions, as text."""
    conditions = [
        f"when {printable(name)} is {_listed(v)}" for name, v in (domain.when or {}).items()
    ]
    if isinstance(domain, Choice):
        some = ", ".join(hyperparameter(value) for value in domain.values[:_MOST_CHOICES])
        more = len(domain.values) - _MOST_CHOICES
        kind = "ordered choice" if domain.ordered else "choice"
        return some + (f" and {more} more" if more > 0 else ""), ", ".join([kind, *conditions])
    whole = type(domain).__name__.lower()
    bounds = f"{hyperparameter(domain.low)} to {hyperparameter(domain.high)}"
    scale = [whole, "log" if domain.log else "linear"]
    if domain.step is not None and (domain.step != 1 or whole == "float"):
        scale.append(f"steps of {hyperparameter(domain.step)}")
    return bounds, ", ".join(scale + conditions)


def _listed(values: Sequence[Any]) -> str:
    some = " or ".join(hyperparameter(value) for value in values[:_MOST_CHOICES])
    return some + (" or ..." if len(values) > _MOST_CHOICES else "")


def arguments_of_algorithm(manifest: Manifest) -> str:
    """Return the arguments of a run's algorithm as in its call, without spaces.

    Those of `experiment.run` begin with the name of the algorithm.
    """
    arguments = manifest.arguments
    chosen = {"searcher": arguments.get("type")} if manifest.call == "run" else {}
    given = {name: value for name, value in arguments.items() if name != "bounds"}
    return as_arguments(chosen | given)


def _as_code(rule: dict[str, Any]) -> str:
    return f"{rule['type']}({as_arguments(rule)})"


def _call(manifest: Manifest) -> str:
    """Return the call as a code block, which is indented by four spaces."""
    given = prefixed(", ", arguments_of_algorithm(manifest))
    return f"    experiment.{manifest.call}(spark, {printable(manifest.train)}, ...{given})"


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def escaped(text: object) -> str:
    """Return text in one line that Markdown shows literally."""
    line = " ".join(printable(str(text), keep="\r\n\t").split())  # four leading spaces mean code
    marked = re.sub(r"([\\`*_\[\]#!])", r"\\\1", html.escape(line, quote=False))
    marked = re.sub(r"^(\d*)([-+.])", r"\1\\\2", marked)  # else an item of a list, or a rule
    return marked.replace("|", "&#124;")
