"""The command-line options of a job, derived from the signatures of the calls."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
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

import experiment
from experiment.setup.keywords import entries
from search.errors import InvalidArgument, did_you_mean, one_line, prefixed, shown
from search.space.domain_dicts import read_domain
from search.stopping.rules import StoppingRule

BAD_INPUT = 4
"""The exit status after bad input."""

_SEARCHERS: dict[str, Callable[..., Any]] = {
    "evolution": experiment.evolutionary_search,
    "random": experiment.random_search,
    "bayesian": experiment.bayesian_search,
    "population": experiment.population_based_training,
    "hyperband": experiment.hyperband_search,
}
_CALLS: tuple[Callable[..., Any], ...] = (
    *_SEARCHERS.values(),
    experiment.launch,
    experiment.run,
    experiment.search_each,
)
_SPACES = {
    "grid": "file with a grid: a list of values per hyperparameter; or a list of points",
    "bounds": "file with bounds per hyperparameter: [low, high], a list of choices, or "
    "{type: float, low: 0.001, high: 0.1, log: true}",
    "groups": "file with bounds per group, for one search per group",
}
_GIVEN = ("spark", "train", "searcher", "args_dict", "space", "bounds")  # set by other options
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
_STRATEGIES = {
    "mirrored": experiment.Mirrored,
    "jax": experiment.Jax,
    "downpour": experiment.Downpour,
    "codistillation": experiment.Codistillation,
}
_OURS = ("experiment", "search", "spark_jobs")
_FILES = (".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The call of a command line.

    Attributes:
        call: The call, such as `experiment.launch`.
        train: The train function.
        space: The search space, in the form of the call's argument.
        arguments: The other arguments, by name.
    """

    call: Callable[..., Any]
    train: Callable[..., Any]
    space: Any
    arguments: dict[str, Any]


def read_job(words: Sequence[str]) -> Job:
    """Read the options of a job, and the files that they name.

    Imports the modules they refer to; those of the current folder are sent to executors.

    Args:
        words: The command line, without the program.

    Raises:
        InvalidArgument: An option's value is invalid.
        SystemExit: For `--help`, and for an unknown option.
    """
    options = _options(words)
    train = _referred("train", options.pop("train"))
    kind = next(name for name in _SPACES if name in options)
    space = _space(kind, _file(kind, options.pop(kind)))
    call, searcher = _call(kind, options.pop("searcher", None))
    arguments: dict[str, Any] = {} if searcher is None else {"searcher": searcher}
    parameters = inspect.signature(call).parameters
    for name, text in options.items():
        if name not in parameters:
            expected = f"an option of experiment.{call.__name__}"
            raise InvalidArgument(_option(name), expected, "an option of other searches")
        arguments[name] = _argument(name, text, parameters[name])
    _send_modules_of(Path.cwd())
    return Job(call=call, train=train, space=space, arguments=arguments)


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return the options of a command line, by the names of the arguments."""
    parser = job_parser()
    options, unknown = parser.parse_known_args(words)
    if unknown:
        names = ("train", "searcher", *_SPACES, *_parameters())
        known = [_option(name).lstrip("-") for name in names]  # dashes would make all similar
        word = unknown[0].partition("=")[0].lstrip("-")
        hint = prefixed("; ", did_you_mean(word, known))
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return vars(options)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if message.endswith("expected one argument"):  # argparse takes -1e-3 for an option
            message += ", after = if it begins with -, as in --target=-1e-3"
        self.exit(BAD_INPUT, f"{self.prog}: {message}; --help lists the options\n")


def job_parser() -> argparse.ArgumentParser:
    """Return the parser of a job's options."""
    parser = _Parser(
        prog="submit.py",
        description="Run one search on Spark.",
        epilog="Values are YAML; those of more than a word may be a file (.json, .yaml). Exit "
        "status: 0 done, 3 no trial has a result, 4 bad input, 130 cancelled, 1 any other error. "
        "Example: spark-submit --master spark://host:7077 --py-files build/experiment.zip "
        "spark_jobs/submit.py --train my_module:train --bounds bounds.yaml --popsize 20",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument(
        "--train", required=True, metavar="MODULE:FUNCTION", help="the train function"
    )
    spaces = parser.add_mutually_exclusive_group(required=True)
    for name, text in _SPACES.items():
        spaces.add_argument(_option(name), metavar="FILE", help=text)
    known = ", ".join([*_SEARCHERS, *_ALGORITHMS])
    text = (
        f"with --bounds: {known}, also as {{type: NSGA2, popsize: 20}}, or MODULE:NAME, an object; "
        "default: evolution. With --groups: one of these classes, or MODULE:NAME; default: "
        "BayesianOptimization"
    )
    parser.add_argument("--searcher", help=text)
    for name, (parameter, text) in _parameters().items():
        lone = parameter.annotation == "bool"
        parser.add_argument(
            _option(name),
            metavar="MODULE:FUNCTION" if name == "constraint" else "VALUE",
            help=text.replace("%", "%%"),
            nargs="?" if lone else None,
            const="true" if lone else None,
        )
    return parser


def _parameters() -> dict[str, tuple[inspect.Parameter, str]]:
    """Return the calls' parameters other than space and train function, with descriptions.

    jsonargparse does the same, but spells `--max-failures` with an underscore, takes neither a lone
    `--generational` nor `module:name` nor a rule as {type: ...}, and its parsers of all calls take
    0.2 s to make. The descriptions are read for `help(experiment.launch)`, too; see `entries`.
    """
    found: dict[str, tuple[inspect.Parameter, str]] = {}
    for call in _CALLS:
        described = entries(inspect.getdoc(call) or "")
        for name, parameter in inspect.signature(call).parameters.items():
            if name not in _GIVEN:
                text = described.get(name, "").partition(": ")[2]  # python -OO drops docstrings
                found.setdefault(name, (parameter, " ".join(text.split())))
    return found


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _call(kind: str, searcher: str | None) -> tuple[Callable[..., Any], Any]:
    """Return the call for a kind of space and a searcher, and its searcher argument."""
    if kind == "grid":
        if searcher is not None:
            hint = "a grid has no searcher; write --bounds"
            raise InvalidArgument("--searcher", "--bounds or --groups with it", "--grid", hint)
        return experiment.launch, None
    if kind == "groups":
        made = None if searcher is None else _made("searcher", searcher, _ALGORITHMS)
        return experiment.search_each, made
    if searcher is None or searcher in _SEARCHERS:
        return _SEARCHERS[searcher or "evolution"], None
    return experiment.run, _made("searcher", searcher, _ALGORITHMS, _SEARCHERS)


def _argument(name: str, text: str, parameter: inspect.Parameter) -> Any:
    """Return an argument of a call, read from the text of its option."""
    if name == "constraint":
        return _referred(name, text)
    kinds = str(parameter.annotation)
    if kinds.startswith("str") and "Mapping" not in kinds:  # a number too, as a name
        return text
    if name == "stopping":
        given = _read(name, text)
        return [_made(name, rule, _RULES) for rule in (given if type(given) is list else [given])]
    value = _yaml(name, text) if name == "warm_start" else _read(name, text)
    if name == "strategy" and type(value) is dict:
        return _made(name, value, _STRATEGIES)
    return tuple(value) if name == "mutation" and type(value) is list else value


def _read(name: str, text: str) -> Any:
    """Read a value: YAML, or the name of a file with it."""
    return _file(name, text) if text.endswith(_FILES) else _yaml(name, text)


def _made(
    name: str, given: Any, kinds: Mapping[str, Callable[..., Any]], others: Sequence[str] | Any = ()
) -> Any:
    """Create an object of one of our classes: 'NSGA2', or {type: NSGA2, popsize: 20}."""
    if isinstance(given, str):
        if re.fullmatch(r"[\w.]+:[\w.]+", given):
            return _referred(name, given)
        given = _read(name, given)
    arguments = dict(given) if isinstance(given, dict) else {"type": given}
    type_ = str(arguments.pop("type", None))
    kind = kinds.get(type_)
    if kind is None:
        expected = f"one of {', '.join([*others, *kinds])}, or module:name"
        hint = f"its arguments are options: {_option(name)} {type_} ..." if type_ in others else ""
        raise InvalidArgument(_option(name), expected, shown(given), hint)
    signature = inspect.signature(kind)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        known = signature.parameters
        hint = did_you_mean(next((word for word in arguments if word not in known), None), known)
        got = f"{shown(given)}: {error}"
        raise InvalidArgument(_option(name), f"arguments of {kind.__name__}", got, hint) from None
    return kind(**arguments)


def _referred(name: str, reference: str) -> Any:
    """Return the object that "module:name" refers to."""
    module, colon, path = reference.partition(":")
    if not colon or not module or not path:
        raise InvalidArgument(_option(name), "module:function", shown(reference))
    if "/" in module:
        raise _not_importable(name, module, path)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _import_failed(name, module, error) from error  # another module is missing
        raise _not_importable(name, module, path) from None
    except (Exception, SystemExit) as error:  # raised by the user's code, which may also exit
        raise _import_failed(name, module, error) from error
    try:
        return operator.attrgetter(path)(found)
    except AttributeError:
        where = getattr(found, "__file__", None) or module
        hint = _same_name(module, where)
        raise InvalidArgument(_option(name), f"a name in {where}", repr(path), hint) from None


def _not_importable(name: str, module: str, path: str) -> InvalidArgument:
    """Return the error of a module that is missing, or of a file in place of a module."""
    hint = "put it into the current folder; in cluster mode, ship it with --py-files"
    file = os.path.normpath(module)
    if file.endswith(".py") and not file.startswith(("/", "..")):
        hint = f"write {file.removesuffix('.py').replace('/', '.')}:{path}, without .py"
    return InvalidArgument(_option(name), "a module that can be imported", repr(module), hint)


def _same_name(module: str, imported: str) -> str:
    """Return advice if another module was imported than that of the current folder."""
    for end in (".py", "/__init__.py"):
        own = os.path.abspath(module.replace(".", "/") + end)
        if os.path.exists(own) and os.path.realpath(own) != os.path.realpath(imported):
            return f"{own} has the same name and is not imported: rename it"
    return ""


def _import_failed(name: str, module: str, error: BaseException) -> InvalidArgument:
    """Return the error of a failed import, with the failing line of the user."""
    frames = traceback.extract_tb(error.__traceback__)[2:]  # without _referred, import_module
    lines = [frame for frame in frames if not frame.filename.startswith("<frozen importlib")]
    where = ""
    if lines:
        home = os.path.dirname(lines[0].filename)  # lines of libraries say less
        line = [frame for frame in lines if os.path.dirname(frame.filename) == home][-1]
        where = f"{os.path.basename(line.filename)}, line {line.lineno}: "
    got = f"{module!r}: {where}{one_line(error)}"
    return InvalidArgument(_option(name), "a module that can be imported", got)


def _space(kind: str, given: Any) -> Any:
    """Return a space with its domains, which are mappings with a type in a file."""
    if not isinstance(given, dict):
        return given  # points; the call refuses anything else
    if kind == "groups":
        return {group: _space("bounds", bounds) for group, bounds in given.items()}
    return {
        name: read_domain(f"{kind}[{name!r}]", value) if isinstance(value, dict) else value
        for name, value in given.items()
    }


def _file(name: str, path: str) -> Any:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # some editors mark it
    except OSError as error:
        got = f"{path!r}: {error.strerror}"
        hint = "in cluster mode, ship it with --files and name it without a folder"
        raise InvalidArgument(_option(name), "a file that can be read", got, hint) from None
    except UnicodeDecodeError:
        raise InvalidArgument(_option(name), "a file in UTF-8", repr(path)) from None
    if not path.endswith(".json"):
        return _yaml(name, text, path)
    try:
        # Not by msgspec, which keeps the last value of a repeated name and drops the others.
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(_option(name), "JSON", f"{path!r}: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"repeated name {next(n for n in names if names.count(n) > 1)!r}")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _yaml(name: str, text: str, path: str = "") -> Any:
    """Read YAML 1.2, in which 1e-5 is a number and `no` a string."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        mark = getattr(error, "problem_mark", None)
        where = f"{path!r}, line {mark.line + 1}" if path and mark else shown(text)
        raise InvalidArgument(_option(name), "YAML", f"{where}: {problem}") from None
    except Exception as error:  # ValueError for 2020-13-45, KeyError for !!bool x, RecursionError
        where = repr(path) if path else shown(text)
        raise InvalidArgument(_option(name), "YAML", f"{where}: {one_line(error)}") from None


def _send_modules_of(folder: Path) -> None:
    """Make cloudpickle send the modules of a folder by value, since executors lack that folder.

    Executors import the modules of other folders, such as those of --py-files or an environment.
    """
    for name, module in list(sys.modules.items()):
        if "." not in name and name not in ("__main__", *_OURS) and _folder_of(module) == folder:
            cloudpickle.register_pickle_by_value(module)


def _folder_of(module: Any) -> Path | None:
    """Return the folder that contains a module or package."""
    places = [*getattr(module, "__path__", ())] or [getattr(module, "__file__", None)]
    return Path(os.path.abspath(places[0])).parent if isinstance(places[0], str) else None
