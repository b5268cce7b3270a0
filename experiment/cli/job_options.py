"""The options of a job on a command line: those of the calls, read off their signatures."""

from __future__ import annotations

import argparse
import importlib
import inspect
import operator
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle
import msgspec

import experiment
from search.errors import InvalidArgument, shown
from search.space.domain_dicts import read_domain
from search.stopping import StoppingRule

BAD_INPUT = 4
"""The exit status after bad input."""

_SEARCHERS: dict[str, Callable[..., Any]] = {
    "evolution": experiment.evolutionary_search,
    "random": experiment.random_search,
    "bayesian": experiment.bayesian_search,
    "population": experiment.population_based_training,
}
_CALLS: tuple[Callable[..., Any], ...] = (
    *_SEARCHERS.values(),
    experiment.launch,
    experiment.run,
    experiment.search_each,
)
_SPACES = {
    "grid": "file of a grid: each hyperparameter with the list of its values; or a list of points",
    "bounds": "file of bounds: each hyperparameter with [low, high], choices, or "
    "{type: float, low: 0.001, high: 0.1, log: true}",
    "groups": "file of groups, each with its bounds, for a search per group",
}
_GIVEN = ("spark", "train", "searcher", "args_dict", "space", "bounds")  # by no option of their own
_ALGORITHMS = {
    name: kind
    for name, kind in vars(experiment).items()
    if isinstance(kind, type) and hasattr(kind, "start") and not issubclass(kind, StoppingRule)
}
_RULES = {
    name: kind
    for name, kind in vars(experiment).items()
    if isinstance(kind, type) and issubclass(kind, StoppingRule)
}
_OURS = ("experiment", "search", "spark_jobs")
_FILES = (".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Job:
    """A call that a command line asks for.

    Attributes:
        call: One of `experiment`.
        train: The train function.
        space: What to search, as that call takes it.
        arguments: The others, by name.
    """

    call: Callable[..., Any]
    train: Callable[..., Any]
    space: Any
    arguments: dict[str, Any]


def read_job(words: Sequence[str]) -> Job:
    """Read the options of a job, with the files that they name.

    Imports what they refer to; modules of the current folder travel to executors with it.

    Args:
        words: The command line, without the program.

    Raises:
        InvalidArgument: Bad input.
        SystemExit: `--help`, or no such option.
    """
    options = vars(_parser().parse_args(words))
    train = _referred("train", options.pop("train"))
    kind = next(name for name in _SPACES if name in options)
    space = _space(kind, _file(kind, options.pop(kind)))
    call, searcher = _call(kind, options.pop("searcher", None))
    arguments: dict[str, Any] = {} if searcher is None else {"searcher": searcher}
    parameters = inspect.signature(call).parameters
    for name, text in options.items():
        if name not in parameters:
            expected = f"an option of experiment.{call.__name__}"
            raise InvalidArgument(_option(name), expected, "one of other searches")
        arguments[name] = _argument(name, text, parameters[name])
    _send_modules_of(Path.cwd())
    return Job(call, train, space, arguments)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}; --help lists the options\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="submit.py",
        description="Run one search on Spark.",
        epilog="Values are YAML; those of more than a word may be a file (.json, .yaml). Exit "
        "status: 0 done, 3 no trial has a result, 4 bad input, 130 cancelled, 1 any other error.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--train", required=True, metavar="MODULE:FUNCTION", help="what to run")
    spaces = parser.add_mutually_exclusive_group(required=True)
    for name, text in _SPACES.items():
        spaces.add_argument(_option(name), metavar="FILE", help=text)
    known = ", ".join([*_SEARCHERS, *_ALGORITHMS])
    text = f"of bounds, evolution if left out; {known}, also as {{type: NSGA2, popsize: 20}}"
    parser.add_argument("--searcher", help=text)
    for name, (parameter, text) in _parameters().items():
        lone = parameter.annotation == "bool"
        parser.add_argument(
            _option(name),
            metavar="VALUE",
            help=text.replace("%", "%%"),
            nargs="?" if lone else None,
            const="true" if lone else None,
        )
    return parser


def _parameters() -> dict[str, tuple[inspect.Parameter, str]]:
    """Return what the calls take beside space and train function, each with its description."""
    found: dict[str, tuple[inspect.Parameter, str]] = {}
    for call in _CALLS:
        described = _described(call) | _described(experiment.Settings)
        for name, parameter in inspect.signature(call).parameters.items():
            if name not in _GIVEN:
                found.setdefault(name, (parameter, described[name]))
    return found


def _described(thing: object) -> dict[str, str]:
    """Return what a docstring says about each argument."""
    text = inspect.getdoc(thing) or ""
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", text, re.MULTILINE)
    return {name: " ".join(about.split()) for name, about in found}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _call(kind: str, searcher: str | None) -> tuple[Callable[..., Any], Any]:
    """Return the call that a space and a searcher stand for, and the searcher that it takes."""
    if kind == "grid":
        if searcher is not None:
            hint = "a grid has no searcher; write --bounds"
            raise InvalidArgument("--searcher", "--bounds or --groups beside it", "--grid", hint)
        return experiment.launch, None
    if kind == "groups":
        made = None if searcher is None else _made("searcher", searcher, _ALGORITHMS)
        return experiment.search_each, made
    if searcher is None or searcher in _SEARCHERS:
        return _SEARCHERS[searcher or "evolution"], None
    return experiment.run, _made("searcher", searcher, _ALGORITHMS, _SEARCHERS)


def _argument(name: str, text: str, parameter: inspect.Parameter) -> Any:
    """Return an argument of a call as the text of its option says it."""
    if name == "constraint":
        return _referred(name, text)
    kinds = str(parameter.annotation)
    if kinds.startswith("str") and "Mapping" not in kinds:  # a number too, as a name
        return text
    if name == "stopping":
        told = _told(name, text)
        return [_made(name, rule, _RULES) for rule in (told if type(told) is list else [told])]
    value = _yaml(name, text) if name == "warm_start" else _told(name, text)
    return tuple(value) if name == "mutation" and type(value) is list else value


def _told(name: str, text: str) -> Any:
    """Read a value: YAML, or the file that has it."""
    return _file(name, text) if text.endswith(_FILES) else _yaml(name, text)


def _made(
    name: str, told: Any, kinds: Mapping[str, Callable[..., Any]], others: Sequence[str] | Any = ()
) -> Any:
    """Return an object of one of our classes: 'NSGA2', or {type: NSGA2, popsize: 20}."""
    if isinstance(told, str):
        if re.fullmatch(r"[\w.]+:[\w.]+", told):
            return _referred(name, told)
        told = _told(name, told)
    arguments = dict(told) if isinstance(told, dict) else {"type": told}
    kind = kinds.get(str(arguments.pop("type", None)))
    if kind is None:
        expected = f"one of {', '.join([*others, *kinds])}, or module:name"
        raise InvalidArgument(_option(name), expected, shown(told))
    try:
        inspect.signature(kind).bind(**arguments)
    except TypeError as error:
        raise InvalidArgument(
            _option(name), f"arguments of {kind.__name__}", f"{shown(told)}: {error}"
        ) from None
    return kind(**arguments)


def _referred(name: str, reference: str) -> Any:
    """Return what "module:name" stands for."""
    module, colon, path = reference.partition(":")
    if not colon or not module or not path:
        raise InvalidArgument(_option(name), "module:function", shown(reference))
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _import_failed(name, module, error) from error  # it is there, and lacks another
        hint = "put it into the current folder; in cluster mode, ship it with --py-files"
        raise InvalidArgument(
            _option(name), "a module that can be imported", repr(module), hint
        ) from None
    except (Exception, SystemExit) as error:  # of the user's code, which may also exit with 0
        raise _import_failed(name, module, error) from error
    try:
        return operator.attrgetter(path)(found)
    except AttributeError:
        where = getattr(found, "__file__", None) or module
        raise InvalidArgument(_option(name), f"a name in {where}", repr(path)) from None


def _import_failed(name: str, module: str, error: BaseException) -> InvalidArgument:
    """Return why a module cannot be imported, with the user's line that failed."""
    frames = traceback.extract_tb(error.__traceback__)[2:]  # without _referred, import_module
    lines = [frame for frame in frames if not frame.filename.startswith("<frozen importlib")]
    where = ""
    if lines:
        home = os.path.dirname(lines[0].filename)  # deeper ones, as of a library, say less
        line = [frame for frame in lines if os.path.dirname(frame.filename) == home][-1]
        where = f"{os.path.basename(line.filename)}, line {line.lineno}: "
    got = f"{module!r}: {where}{_one_line(error)}"
    return InvalidArgument(_option(name), "a module that can be imported", got)


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _space(kind: str, told: Any) -> Any:
    """Return a space with its domains, which a file has as mappings with a type."""
    if not isinstance(told, dict):
        return told  # points; all else the call refuses
    if kind == "groups":
        return {group: _space("bounds", bounds) for group, bounds in told.items()}
    return {name: _domain(f"{kind}[{name!r}]", value) for name, value in told.items()}


def _domain(name: str, told: Any) -> Any:
    return read_domain(name, told) if isinstance(told, dict) else told


def _file(name: str, path: str) -> Any:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        got = f"{path!r}: {error.strerror}"
        hint = "in cluster mode, ship it with --files and name it without a folder"
        raise InvalidArgument(_option(name), "a file that can be read", got, hint) from None
    except UnicodeDecodeError:
        raise InvalidArgument(_option(name), "a file in UTF-8", repr(path)) from None
    if not path.endswith(".json"):
        return _yaml(name, text, path)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgument(_option(name), "JSON", f"{path!r}: {error}") from None


def _yaml(name: str, text: str, path: str = "") -> Any:
    """Read YAML 1.2: 1e-5 is a number there, and no is a word."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        mark = getattr(error, "problem_mark", None)
        where = f"{path!r}, line {mark.line + 1}" if path and mark else shown(text)
        raise InvalidArgument(_option(name), "YAML", f"{where}: {problem}") from None
    except Exception as error:  # ValueError of 2020-13-45, KeyError of !!bool x, RecursionError
        where = repr(path) if path else shown(text)
        raise InvalidArgument(_option(name), "YAML", f"{where}: {_one_line(error)}") from None


def _send_modules_of(folder: Path) -> None:
    """Let functions of modules in a folder travel as a whole: executors lack that folder.

    Those of any other folder, such as what --py-files or an environment brings, are imported there.
    """
    for name, module in list(sys.modules.items()):
        if "." not in name and name not in ("__main__", *_OURS) and _folder_of(module) == folder:
            cloudpickle.register_pickle_by_value(module)


def _folder_of(module: Any) -> Path | None:
    """Return the folder that a module or package lies in."""
    places = [*getattr(module, "__path__", ())] or [getattr(module, "__file__", None)]
    return Path(os.path.abspath(places[0])).parent if isinstance(places[0], str) else None
