import inspect
import json
import math
import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import fields
from pathlib import Path

import pytest

import experiment
from experiment import (
    Float,
    InvalidArgument,
    Settings,
    evolutionary_search,
    launch,
    population_based_training,
    random_search,
    run,
)

HOME = str(Path(experiment.__file__).parent.parent)
HEAVY = ["grpc", "keras", "pandas", "pyspark", "sklearn", "tensorboard", "tensorflow"]
HEAVY += ["dehb", "nevergrad", "optuna"]


def run_python(program, folder, *, fails=False, **environment):
    """Run a program in a fresh interpreter that looks for modules in `folder` first."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=folder,
        env={"PATH": os.defpath, "TMPDIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode != 0) == fails, ended.stderr
    return ended.stderr if fails else ended.stdout


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """The state of a fresh interpreter after `import experiment`, and calls outside a trial."""
    program = f"""
        import json, sys, types, warnings

        warnings.simplefilter("error")
        import experiment

        loaded = [name for name in sys.modules if name.startswith(("experiment.", "search"))]
        experiment.launch
        heavy = [name for name in {HEAVY} if name in sys.modules]
        public = [
            name
            for name, value in vars(experiment).items()
            if not name.startswith("_") and not isinstance(value, types.ModuleType)
        ]
        starred = {{}}
        exec("from experiment import *", starred)
        experiment.report(loss=0.5, accuracy=float("nan"))
        experiment.report(step=3, loss=1)
        folder = experiment.logdir()
        print(json.dumps({{
            "loaded": loaded,
            "heavy": heavy,
            "public": public,
            "starred": [name for name in starred if name != "__builtins__"],
            "logdir": folder,
            "same logdir": experiment.logdir() == folder,
            "params": experiment.params(),
            "loaded later": [name for name in {HEAVY} if name in sys.modules],
        }}))
    """
    folder = tmp_path_factory.mktemp("fresh")
    return json.loads(run_python(program, folder)) | {"folder": folder}


def test_the_import_loads_nothing_but_the_version(fresh):
    assert fresh["loaded"] == ["experiment.version"]


def test_the_first_public_name_loads_nothing_heavy(fresh):
    assert fresh["heavy"] == []


def test_all_lists_exactly_the_public_names(fresh):
    assert sorted(experiment.__all__) == sorted(set(experiment.__all__))
    assert sorted(fresh["starred"]) == sorted(experiment.__all__)
    assert sorted([*fresh["public"], "data"]) == sorted(experiment.__all__)  # data is a module


def test_functions_for_trials_work_outside_a_trial(fresh):
    assert fresh["params"] == {}
    assert fresh["same logdir"]
    assert fresh["logdir"].startswith(str(fresh["folder"]))
    assert [str(path) for path in fresh["folder"].iterdir()] == [fresh["logdir"]]
    assert list(fresh["folder"].glob("*/*")) == []
    assert fresh["loaded later"] == []


def test_the_checkpoint_folder_exists_outside_a_trial(tmp_path):
    program = """
        import experiment, os
        folder = experiment.checkpoint_dir()
        assert experiment.checkpoint_dir() == folder == experiment.logdir() + "/checkpoint"
        assert os.listdir(folder) == []
    """
    run_python(program, tmp_path, PYTHONPATH=HOME)


def test_report_checks_its_arguments_outside_a_trial():
    with pytest.raises(ValueError, match="loss"):
        experiment.report(loss="0.5")
    with pytest.raises(ValueError, match="step"):
        experiment.report(step=0.5, loss=1.0)


@pytest.mark.parametrize("hiding", ["search.py", "search/__init__.py", "spark_jobs.py"])
def test_a_file_that_hides_one_of_our_packages_is_named(tmp_path, hiding):
    file = tmp_path / hiding
    file.parent.mkdir(exist_ok=True)
    file.write_text("raise SystemExit('imported')\n")
    run_python("import experiment", tmp_path)
    message = run_python("import experiment; experiment.launch", tmp_path, fails=True)
    last = message.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert str(file) in last
    assert repr(hiding.removesuffix(".py").split("/")[0]) in last
    assert "rename" in last


def test_a_folder_that_is_no_package_hides_nothing_on_a_path_of_folders(tmp_path):
    (tmp_path / "search").mkdir()
    run_python("from experiment import launch", tmp_path, PYTHONPATH=HOME)


@pytest.mark.parametrize(
    ("function", "own"),
    [
        (launch, ["spark", "train", "args_dict", "constraint"]),
        (
            evolutionary_search,
            [
                "spark",
                "train",
                "bounds",
                "direction",
                "popsize",
                "generations",
                "crossover",
                "mutation",
                "generational",
                "variant",
                "noisy",
                "candidates",
                "points",
                "warm_start",
                "constraint",
            ],
        ),
        (
            random_search,
            ["spark", "train", "bounds", "samples", "points", "warm_start", "constraint"],
        ),
        (
            run,
            [
                "spark",
                "train",
                "space",
                "searcher",
                "samples",
                "points",
                "warm_start",
                "constraint",
            ],
        ),
        (
            population_based_training,
            [
                "spark",
                "train",
                "bounds",
                "direction",
                "popsize",
                "generations",
                "quantile",
                "resample_probability",
                "points",
                "constraint",
            ],
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_signature_shows_every_argument_once(function, own):
    parameters = inspect.signature(function).parameters
    shared = [field.name for field in fields(Settings) if field.name not in own]
    assert list(parameters) == own + shared
    for name in shared:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == getattr(Settings(), name)


def test_the_defaults_of_an_evolutionary_search_can_be_seen():
    parameters = inspect.signature(evolutionary_search).parameters
    defaults = {name: parameters[name].default for name in list(parameters)[3:10]}
    assert defaults == {
        "direction": "max",
        "popsize": 10,
        "generations": 3,
        "crossover": 0.7,
        "mutation": None,
        "generational": False,
        "variant": None,
    }


class Untouchable:
    """A replacement for a SparkSession that fails on any access."""

    def __getattribute__(self, name):
        raise AssertionError(f"spark.{name} was read")


SPARK = Untouchable()
LOCK = threading.Lock()


def train(lr):
    return lr


def needs_more(lr, epochs):
    return lr * epochs


def cannot_be_pickled(lr, lock=LOCK):
    return lr


cannot_be_pickled.__module__ = "__main__"  # otherwise only its name is pickled

GRID = {"lr": [0.1, 0.2]}
BOUNDS = {"lr": [0.1, 0.2]}


def refused(function, *arguments, **keywords):
    with pytest.raises(InvalidArgument) as caught:
        function(SPARK, *arguments, **keywords)
    return caught.value


@pytest.mark.parametrize(
    ("args_dict", "name", "part"),
    [
        ({}, "args_dict", "at least one hyperparameter"),
        ([], "args_dict", "at least one point"),
        ({"lr": []}, "args_dict['lr']", "at least one value"),
        ({"lr": "adam"}, "args_dict['lr']", "write ['adam']"),
        ({"lr": 5}, "args_dict['lr']", "write [5]"),
        ({"lr": None}, "args_dict['lr']", "write [None]"),
        ({"lr": {"a": 1}}, "args_dict['lr']", "a list of values"),
        ({"lr": {1, 2}}, "args_dict['lr']", "a list of values"),
        ({"lr": [object]}, "args_dict['lr']", "None, a bool, a number, a string"),
        ({"": [1]}, "args_dict", "non-empty strings as names"),
        ({1: [1]}, "args_dict", "non-empty strings as names"),
        ([{"lr": 0.1}, 5], "args_dict[1]", "a dict"),
        ([{"lr": len}], "args_dict[0]['lr']", "None, a bool, a number, a string"),
        ("lr", "args_dict", "a dict of lists, or a list of dicts"),
        (5, "args_dict", "a dict of lists, or a list of dicts"),
        (None, "args_dict", "a dict of lists, or a list of dicts"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_grid_that_cannot_be_run_is_refused(args_dict, name, part):
    error = refused(launch, train, args_dict)
    assert error.name == name
    assert part in str(error)


@pytest.mark.parametrize("search", [evolutionary_search, random_search])
@pytest.mark.parametrize(
    ("bounds", "name", "part"),
    [
        ({}, "bounds", "at least one hyperparameter"),
        ([], "bounds", "a dict of hyperparameter names"),
        ([0.1, 0.2], "bounds", "a dict of hyperparameter names"),
        ({"lr": []}, "bounds['lr']", "at least one value"),
        ({"lr": 5}, "bounds['lr']", "write [low, high]"),
        ({"lr": "adam"}, "bounds['lr']", "write [low, high], experiment.Float(low, high)"),
        ({"lr": [0.1]}, "bounds['lr']", "two bounds"),
        ({"lr": [math.nan, 1.0]}, "bounds['lr']", "a finite number"),
        ({"lr": [0.0, math.inf]}, "bounds['lr']", "a finite number"),
        ({"lr": [-math.inf, 0]}, "bounds['lr']", "a finite number"),
        ({"lr": [0.1, "a"]}, "bounds['lr']", "two numbers or two strings"),
        ({"lr": [1, None]}, "bounds['lr']", "two numbers or two strings"),
        ({"lr": [True, 2]}, "bounds['lr']", "two numbers or two strings"),
        ({"fine": [1, 2], "lr": [0, 2**54]}, "bounds['lr']", "2^53"),
        ({"": [1, 2]}, "bounds", "non-empty strings as names"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bounds_that_cannot_be_searched_are_refused(search, bounds, name, part):
    error = refused(search, train, bounds)
    assert error.name == name
    assert part in str(error)


CONDITIONAL = {"opt": ["adam", "sgd"], "lr": Float(0.0, 1.0, when={"opt": "sgd"})}


def has_a_default(opt, lr=None):
    return 0.0


@pytest.mark.parametrize("search", [evolutionary_search, random_search, population_based_training])
def test_an_argument_of_only_some_trials_needs_a_default(search):
    def train(opt, lr):
        return 0.0

    error = refused(search, train, CONDITIONAL)
    assert str(error) == (
        "train: expected a default for its argument 'lr', which only some trials get (when=), got "
        "none; write lr=None, or the value that those without it use"
    )


@pytest.mark.parametrize("search", [evolutionary_search, random_search, population_based_training])
@pytest.mark.parametrize(
    ("constraint", "part"),
    [
        (lambda p: False, "got none among 10,000 drawn at random, such as {'opt': '"),
        (lambda p: p["lr"] < 0.5, "got KeyError: 'lr', for {'opt': 'adam'}; it is not in every "),
        (lambda p: None, "expected True or False, got None, for {'opt': '"),
        (lambda: True, "expected True or False, got TypeError: "),
        ("lr < 0.5", "expected a function of a dict of hyperparameters, or None"),
    ],
    ids=["nothing", "inactive", "no bool", "no argument", "no function"],
)
def test_an_unsatisfiable_constraint_is_refused(search, constraint, part):
    error = refused(search, has_a_default, CONDITIONAL, constraint=constraint)
    assert error.name == "constraint"
    assert part in str(error)


def test_unsatisfiable_conditions_are_refused():
    bounds = CONDITIONAL | {"lr": Float(0.0, 1.0, when={"opt": "sdg"})}
    error = refused(random_search, has_a_default, bounds)
    assert error.name == "bounds['lr'].when['opt']"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"popsize": 3}, "an integer of at least 4"),
        ({"popsize": 4.0}, "an integer of at least 4"),
        ({"popsize": True}, "an integer of at least 4"),
        ({"generations": 0}, "an integer of at least 1"),
        ({"generations": "3"}, "an integer of at least 1"),
        ({"crossover": 1.5}, "a number of [0, 1]"),
        ({"crossover": -0.1}, "a number of [0, 1]"),
        ({"crossover": math.nan}, "a number of [0, 1]"),
        ({"mutation": 0}, "a number of (0, 2], or two of them"),
        ({"mutation": 2.5}, "a number of (0, 2], or two of them"),
        ({"mutation": "0.5"}, "a number of (0, 2], or two of them"),
        ({"generational": None}, "True or False"),
        ({"generational": 1}, "True or False"),
        ({"noisy": None}, "True or False"),
        ({"variant": "best1bin"}, "'rand1bin' or 'current-to-pbest1bin'"),
        ({"direction": "up"}, "'max' or 'min'"),
    ],
    ids=str,
)
def test_arguments_of_an_evolutionary_search_are_checked(arguments, expected):
    [(name, value)] = arguments.items()
    for generational in (True, False):
        error = refused(
            evolutionary_search, train, BOUNDS, **{"generational": generational, **arguments}
        )
        assert (error.name, error.expected, error.got) == (name, expected, repr(value))


def test_a_noisy_objective_is_not_searched_by_generation():
    error = refused(evolutionary_search, train, BOUNDS, generational=True, noisy=True)
    assert (error.name, error.expected) == ("noisy", "False with generational=True")


def test_a_search_by_generation_does_not_screen():
    error = refused(evolutionary_search, train, BOUNDS, generational=True, candidates=5)
    assert (error.name, error.expected) == ("candidates", "None with generational=True")


@pytest.mark.parametrize("search", [evolutionary_search, random_search, population_based_training])
@pytest.mark.parametrize(
    ("points", "name", "part"),
    [
        ({"lr": 0.1}, "points", "a list of dicts"),
        (["lr"], "points[0]", "a dict of hyperparameter names"),
        ([{"lr": 0.15}, {"lr": 5}], "points[1]['lr']", "a value from 0.1 to 0.2"),
        ([{"rate": 0.1}], "points[0]", "hyperparameters of ['lr']"),
        ([{"lr": 0.1}] * 1000, "points", "at most"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_invalid_points_are_refused(search, points, name, part):
    error = refused(search, train, BOUNDS, points=points)
    assert error.name == name
    assert part in str(error)


@pytest.mark.parametrize("search", [evolutionary_search, random_search])
@pytest.mark.parametrize(
    ("runs", "part"),
    [
        (5, "the folder of a run, or a list"),
        ([5], "the folder of a run, got 5"),
        ("", "the folder of a run, got ''"),
        ("/nowhere", "'/nowhere', which is no folder"),
        (["/nowhere"], "'/nowhere', which is no folder"),
        (b"run", "the folder of a run, got b'run'"),
    ],
    ids=str,
)
def test_prior_observations_without_a_run_are_refused(search, runs, part):
    error = refused(search, train, BOUNDS, warm_start=runs)
    assert error.name == "warm_start"
    assert part in str(error)


@pytest.mark.parametrize("samples", [0, -1, 1.5, True, None])
def test_samples_are_checked(samples):
    error = refused(random_search, train, BOUNDS, samples=samples)
    assert (error.name, error.got) == ("samples", repr(samples))


SEARCHES = pytest.mark.parametrize(
    ("search", "space"),
    [
        (launch, GRID),
        (launch, [{"lr": 0.1}, {"lr": 0.2}]),
        (evolutionary_search, BOUNDS),
        (random_search, BOUNDS),
        (population_based_training, BOUNDS),
    ],
    ids=["grid", "points", "evolution", "random", "population"],
)


@SEARCHES
@pytest.mark.parametrize(
    "arguments",
    [
        {"direction": "up"},
        {"name": ""},
        {"optimization_key": 1},
        {"logdir": "s3://bucket/runs"},
        {"logdir": "hdfs:/host/runs"},
        {"parallelism": 0},
        {"stopping": "median"},
        {"timeout": math.nan},
        {"grace": 0},
        {"deadline": -1},
        {"target": math.nan},
        {"startup_timeout": "soon"},
        {"max_failures": -1},
        {"seed": -1},
        {"isolation": "thread"},
        {"preload": "keras"},
    ],
    ids=str,
)
def test_settings_are_checked_by_every_search(search, space, arguments):
    assert refused(search, train, space, **arguments).name == next(iter(arguments))


@SEARCHES
def test_an_unknown_argument_is_a_type_error(search, space):
    with pytest.raises(TypeError, match="paralellism"):
        search(SPARK, train, space, paralellism=2)


@SEARCHES
@pytest.mark.parametrize(
    ("function", "part"),
    [
        (None, "train: expected a function, got None"),
        (lambda: 0, "a function that accepts 'lr'"),
        (lambda rate: 0, "a function that accepts 'lr'"),
        (lambda lr, /: 0, "arguments that can be passed by name, got 'lr', by position only"),
        (needs_more, "a hyperparameter for its argument 'epochs'"),
        (cannot_be_pickled, "one that refers to 'lock'"),
    ],
    ids=["none", "nothing", "other", "by position", "more", "unpicklable"],
)
def test_a_train_function_that_cannot_be_run_is_refused(search, space, function, part):
    error = refused(search, function, space)
    assert error.name == "train"
    assert part in str(error)


def test_each_point_of_a_list_is_checked_against_the_train_function():
    error = refused(launch, train, [{"lr": 0.1}, {"lr": 0.1, "epochs": 2}])
    assert error.expected == "a function that accepts 'epochs'"
    error = refused(launch, needs_more, [{"lr": 0.1, "epochs": 2}, {"lr": 0.1}])
    assert error.expected == "a hyperparameter for its argument 'epochs'"


def test_the_session_is_used_only_after_all_checks():
    with pytest.raises(AssertionError, match=r"^spark\.\w+ was read$"):
        launch(SPARK, train, GRID)


@pytest.mark.parametrize("spark", [None, "local[2]", 5])
def test_only_a_session_is_accepted(spark):
    with pytest.raises(InvalidArgument, match=r"^spark: expected a SparkSession, got "):
        launch(spark, train, GRID)


def test_a_folder_that_hides_a_package_is_named(tmp_path):
    (tmp_path / "search").mkdir()
    message = run_python("from experiment import launch", tmp_path, fails=True)
    assert str(tmp_path / "search") in message.splitlines()[-1]
