"""The call of a command line: `read_job`, without Spark."""

from __future__ import annotations

import inspect
import json
import shlex
import sys
from pathlib import Path

import cloudpickle
import pytest

import experiment
from experiment import InvalidArgument
from experiment.cli.job_options import read_job
from experiment.setup.keywords import SearchKeywords, entries
from tests.experiment import calls as train_module

TRAIN = ["--train", "options_module:train"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder, with a module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "options_module.py").write_text(
        "def train(x): return x\n\ndef allow(p): return True\n\nNUMBER = 3\n"
    )
    (tmp_path / "space.yaml").write_text("x: [1e-5, 1e-2]\n")
    (tmp_path / "latin.yaml").write_bytes(b"x: [\xfc]\n")
    (tmp_path / "space.json").write_text('{"x": [0.00001, 0.01]}')
    yield tmp_path
    module = sys.modules.pop("options_module", None)
    if module is not None and module.__name__ in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.unregister_pickle_by_value(module)


def bounds(folder, text):
    (folder / "bounds.yaml").write_text(text)
    return read_job([*TRAIN, "--bounds", "bounds.yaml"]).space


@pytest.mark.parametrize("file", ["space.yaml", "space.json"])
def test_a_grid_is_launched_with_its_lists(file):
    job = read_job([*TRAIN, "--grid", file])
    assert job.call is experiment.launch
    assert job.space == {"x": [1e-5, 1e-2]}
    assert job.train is sys.modules["options_module"].train
    assert job.arguments == {}


def test_a_grid_may_be_a_list_of_points(folder):
    (folder / "points.yaml").write_text("- {x: 1}\n- {x: 2}\n")
    assert read_job([*TRAIN, "--grid", "points.yaml"]).space == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize(
    ("searcher", "call"),
    [
        ([], experiment.evolutionary_search),
        (["--searcher", "evolution"], experiment.evolutionary_search),
        (["--searcher", "random"], experiment.random_search),
        (["--searcher", "bayesian"], experiment.bayesian_search),
        (["--searcher", "population"], experiment.population_based_training),
        (["--searcher", "hyperband"], experiment.hyperband_search),
        (["--searcher", "NSGA2"], experiment.run),
    ],
)
def test_the_call_of_each_searcher(searcher, call):
    job = read_job([*TRAIN, "--bounds", "space.yaml", *searcher])
    assert job.call is call


def test_a_searcher_has_arguments():
    words = ["--bounds", "space.yaml", "--searcher", "{type: RegularizedEvolution, popsize: 17}"]
    job = read_job([*TRAIN, *words, "--samples", "20"])
    searcher = experiment.RegularizedEvolution(popsize=17)
    assert job.arguments == {"searcher": searcher, "samples": 20}


@pytest.mark.parametrize(
    "written",
    ["type: NSGA2\npopsize: 8", "{type: NSGA2, popsize: 8}", "searcher.yaml"],
)
def test_a_searcher_may_be_written_in_any_style_of_yaml(folder, written):
    (folder / "searcher.yaml").write_text("type: NSGA2\npopsize: 8\n")
    job = read_job([*TRAIN, "--bounds", "space.yaml", "--searcher", written])
    assert job.arguments == {"searcher": experiment.NSGA2(popsize=8)}


@pytest.mark.parametrize(
    "written",
    [
        "- type: Patience\n  patience: 2\n- options_module:RULE",
        "- 'type: Patience\n\n  patience: 2'\n- options_module:RULE",
        "rules.yaml",
    ],
)
def test_stopping_rules_may_be_written_in_any_style_of_yaml(folder, written):
    (folder / "rules.yaml").write_text("- type: Patience\n  patience: 2\n- options_module:RULE\n")
    with (folder / "options_module.py").open("a") as file:
        file.write("\nimport experiment\n\nRULE = experiment.Patience(patience=3)\n")
    job = read_job([*TRAIN, "--bounds", "space.yaml", "--stopping", written])
    assert [rule.patience for rule in job.arguments["stopping"]] == [2, 3]


@pytest.mark.parametrize(("written", "precision"), [("mixed_float16",) * 2, ("null", None)])
def test_a_precision_is_an_option(folder, written, precision):
    job = read_job([*TRAIN, "--bounds", "space.yaml", "--precision", written])
    assert job.arguments == {"precision": precision}


@pytest.mark.parametrize(
    ("written", "strategy"),
    [
        ("mirrored", "mirrored"),
        ("null", None),
        ("{type: mirrored, unprotected: true}", experiment.Mirrored(unprotected=True)),
        ("{type: downpour, push_every: 5}", experiment.Downpour(push_every=5)),
    ],
)
def test_a_strategy_may_have_settings(folder, written, strategy):
    job = read_job([*TRAIN, "--bounds", "space.yaml", "--strategy", written])
    assert job.arguments == {"strategy": strategy}


def test_each_group_is_searched(folder):
    (folder / "groups.yaml").write_text("eu: {x: {type: choice, values: [1]}}\nus: {x: [1, 3]}\n")
    job = read_job([*TRAIN, "--groups", "groups.yaml", "--by", "region"])
    assert job.call is experiment.search_each
    assert job.space == {"eu": {"x": experiment.Choice([1])}, "us": {"x": [1, 3]}}
    assert job.arguments == {"by": "region"}


def test_values_have_the_types_of_the_calls():
    words = ["--popsize", "8", "--crossover", "0.9", "--mutation", "[0.5, 1e0]", "--noisy"]
    words += ["--generational", "false", "--name", "7", "--description", "a: b", "--seed", "3"]
    words += ["--direction", "{accuracy: max, latency: min}", "--preload", "[]"]
    words += ["--retry-on", "[executor lost]", "--constraint", "options_module:allow"]
    words += ["--logdir", "hdfs://host:9000/runs", "--stopping", "{type: Patience, patience: 2}"]
    job = read_job([*TRAIN, "--bounds", "space.yaml", *words])
    assert job.arguments == {
        "popsize": 8,
        "crossover": 0.9,
        "mutation": (0.5, 1.0),
        "noisy": True,
        "generational": False,
        "name": "7",
        "description": "a: b",
        "seed": 3,
        "direction": {"accuracy": "max", "latency": "min"},
        "preload": [],
        "retry_on": ["executor lost"],
        "constraint": sys.modules["options_module"].allow,
        "logdir": "hdfs://host:9000/runs",
        "stopping": [experiment.Patience(patience=2)],
    }


def test_points_may_be_a_file(folder):
    (folder / "first.yaml").write_text("- {x: 1e-3}\n")
    job = read_job([*TRAIN, "--bounds", "space.yaml", "--points", "first.yaml"])
    assert job.arguments == {"points": [{"x": 1e-3}]}


def test_every_domain_can_be_written(folder):
    domains = {
        "a": experiment.Float(1e-5, 1, log=True),
        "b": experiment.Float(0, 1, step=0.25),
        "c": experiment.Integer(2, 64, log=True),
        "d": experiment.Choice(["sgd", "no", 1, None], ordered=False),
        "e": experiment.Float(0, 1, when={"d": ["sgd", 1]}),
        "f": experiment.Choice([1, 2, 3], ordered=True, when={"d": "sgd"}),
    }
    written = """
a: {type: float, low: 1e-5, high: 1, log: true}
b: {type: float, low: 0, high: 1, step: 0.25}
c: {type: integer, low: 2, high: 64, log: true}
d: {type: choice, values: [sgd, no, 1, null]}
e: {type: float, low: 0, high: 1, when: {d: [sgd, 1]}}
f: {type: choice, values: [1, 2, 3], ordered: true, when: {d: sgd}}
"""
    assert bounds(folder, written) == domains


def test_the_space_of_a_manifest_can_be_read(folder):
    domains = {"a": experiment.Float(1e-5, 1, log=True), "b": experiment.Choice(range(9))}
    written = {name: domain.to_json() for name, domain in domains.items()}
    assert bounds(folder, json.dumps(written)) == domains


def test_every_argument_of_a_call_has_an_option(capsys):
    with pytest.raises(SystemExit) as ended:
        read_job(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    given = {"spark", "train", "searcher", "args_dict", "space", "bounds"}
    for call in ("launch", "run", "evolutionary_search", "search_each", "random_search"):
        for name in inspect.signature(getattr(experiment, call)).parameters:
            assert name in given or f"--{name.replace('_', '-')}" in text


def test_the_help_has_the_meaning_of_each_option_and_an_example(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "10000")
    with pytest.raises(SystemExit):
        read_job(["--help"])
    text = capsys.readouterr().out
    for name, meaning in entries(inspect.getdoc(experiment.Settings)).items():
        if name in SearchKeywords.__optional_keys__:
            assert " ".join(meaning.partition(": ")[2].split()) in text
    assert "Example: spark-submit " in text
    _, example = text.split("spark_jobs/submit.py ")
    Path("my_module.py").write_text("def train(x): return x\n")
    Path("bounds.yaml").write_text("x: [1, 2]\n")
    try:
        assert read_job(shlex.split(example)).arguments == {"popsize": 20}
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules.pop("my_module"))


def test_a_module_of_the_current_folder_is_sent_by_value():
    read_job([*TRAIN, "--grid", "space.yaml"])
    assert "options_module" in cloudpickle.list_registry_pickle_by_value()


def test_another_module_is_imported_on_executors():
    job = read_job(["--train", f"{train_module.__name__}:fail", "--grid", "space.yaml"])
    assert job.train is train_module.fail
    assert "tests" not in cloudpickle.list_registry_pickle_by_value()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--grid", "no.yaml"], "--grid: expected a file that can be read, got 'no.yaml': No such"),
        (["--grid", "latin.yaml"], "--grid: expected a file in UTF-8, got 'latin.yaml'"),
        (["--grid", "space.yaml", "--train", "train"], "--train: expected module:function"),
        (["--grid", "space.yaml", "--train", "no_such:f"], "a module that can be imported"),
        (["--grid", "space.yaml", "--train", "options_module:f"], "options_module.py, got 'f'"),
        (
            ["--grid", "space.yaml", "--popsize", "3"],
            "--popsize: expected an option of experi",
        ),
        (["--grid", "space.yaml", "--searcher", "random"], "--searcher: expected --bounds"),
        (
            ["--bounds", "space.yaml", "--searcher", "magic"],
            "--searcher: expected one of evol",
        ),
        (
            ["--bounds", "space.yaml", "--searcher", "{type: evolution, popsize: 20}"],
            "; its arguments are options: --searcher evolution ...",
        ),
        (["--bounds", "space.yaml", "--searcher", "{type: NSGA2, pop: 1}"], "arguments of NSGA2"),
        (
            ["--bounds", "space.yaml", "--searcher", "{type: NSGA2, popsiz: 8}"],
            "keyword argument 'popsiz'; did you mean 'popsize'?",
        ),
        (["--bounds", "space.yaml", "--strategy", "{type: ring}"], "--strategy: expected one of m"),
        (["--bounds", "space.yaml", "--stopping", "Never"], "--stopping: expected one of "),
        (["--bounds", "space.yaml", "--popsize", "[1"], "--popsize: expected YAML, got '[1'"),
        (
            ["--bounds", "space.yaml", "--seed", "2020-13-45"],
            "--seed: expected YAML, got '2020-13-45': ValueError: month must be in 1..12",
        ),
        (["--bounds", "space.yaml", "--seed", "!!bool x"], "--seed: expected YAML, got '!!bool x'"),
        (["--bounds", "space.yaml", "--points", "[" * 5000], "RecursionError: "),
    ],
)
def test_bad_input_is_named(words, message):
    with pytest.raises(InvalidArgument) as error:
        read_job([*TRAIN, *words])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("file", ["experiment.py", "json/__init__.py"])
def test_a_module_of_the_current_folder_hidden_by_another_of_its_name_is_named(folder, file):
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text("def train(x): return x\n")
    module = sys.modules[file.split("/")[0].removesuffix(".py")]
    with pytest.raises(InvalidArgument) as error:
        read_job(["--grid", "space.yaml", "--train", f"{module.__name__}:train"])
    assert str(error.value) == (
        f"--train: expected a name in {module.__file__}, got 'train'; {folder / file} has the same "
        "name and is not imported: rename it"
    )


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("options_module.py:train", "; write options_module:train"),
        ("./options_module.py:train", "; write options_module:train"),
        ("jobs/lenet.py:train", "; write jobs.lenet:train"),
        ("../lenet.py:train", "; put it into the current folder"),
        ("/home/user/lenet.py:train", "; put it into the current folder"),
    ],
)
def test_a_file_instead_of_a_module_is_answered_with_the_module(given, hint):
    with pytest.raises(InvalidArgument) as error:
        read_job(["--grid", "space.yaml", "--train", given])
    file = given.partition(":")[0]
    said = f"--train: expected a module that can be imported, got {file!r}{hint}"
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: {lo: 1, high: 2}", "bounds['x']: expected a list, or a mapping with a type"),
        ("x: {type: float, low: 1, high: 2, lgo: true}", "keys among type, low, high, log"),
        ("x: {type: float, low: 1}", "bounds['x']: expected a domain of type float"),
        ("x: {type: [float]}", "bounds['x']: expected a list, or a mapping with a type"),
        ("x: {type: float, low: -1, high: 2, log: true}", "bounds above zero for a log scale"),
        ("x: [1, 2]\nx: [1, 3]", "--bounds: expected YAML, got 'bounds.yaml', line 2: found dupl"),
        (
            "x: [2020-13-45, 2]",
            "--bounds: expected YAML, got 'bounds.yaml': ValueError: month must be in 1..12",
        ),
        ("x: !!python/object:os.system y", "could not determine a constructor"),
    ],
)
def test_bad_files_are_named(folder, text, message):
    with pytest.raises(InvalidArgument) as error:
        bounds(folder, text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2"),
        ('{"x": [1], "x": [2]}', "repeated name 'x'"),
        ('{"x": [NaN]}', "NaN is no JSON"),
    ],
)
def test_bad_json_is_named(folder, text, problem):
    (folder / "space.json").write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        read_job([*TRAIN, "--grid", "space.json"])
    assert str(caught.value).startswith(f"--grid: expected JSON, got 'space.json': {problem}")


@pytest.mark.parametrize("file", ["space.yaml", "space.json"])
def test_a_file_may_begin_with_a_byte_order_mark(folder, file):
    (folder / file).write_text('\ufeff{"x": [1, 2]}')
    assert read_job([*TRAIN, "--grid", file]).space == {"x": [1, 2]}


def test_json_that_is_nested_too_deep_is_named(folder):
    (folder / "space.json").write_text("[" * 100_000)
    with pytest.raises(InvalidArgument, match="--grid: expected JSON, got 'space.json': maximum"):
        read_job([*TRAIN, "--grid", "space.json"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def train(x):\n    return x +\n",
            ": SyntaxError: invalid syntax (bad_train.py",
        ),
        ("\n1 / 0\n", "'bad_train': bad_train.py, line 2: ZeroDivisionError: division by zero"),
        ("import no_such\n", "'bad_train': bad_train.py, line 1: ModuleNotFoundError: No module"),
        ("\nimport bad_helper\n", "bad_helper.py, line 1: ValueError: two lines"),
        ("import json\n\njson.loads('{')\n", "bad_train.py, line 3: JSONDecodeError: "),
        ("raise SystemExit(0)\n", "'bad_train': bad_train.py, line 1: SystemExit: 0"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_line(folder, text, message):
    (folder / "bad_train.py").write_text(text)
    (folder / "bad_helper.py").write_text("raise ValueError('two\\nlines')\n")
    with pytest.raises(InvalidArgument, match="--train: expected a module that") as error:
        read_job(["--train", "bad_train:train", "--grid", "space.yaml"])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--verbos", "2"],
            "unrecognized arguments: --verbos 2; did you mean 'verbose'?; --help",
        ),
        (["--optimisation-key=loss"], "; did you mean 'optimization-key'?; --help lists"),
        (["--magic", "1"], "unrecognized arguments: --magic 1; --help lists the options"),
        (["--target", "-1e-3"], "one argument, after = if it begins with -, as in --target=-1e-3;"),
    ],
)
def test_a_wrong_option_is_refused_with_what_may_be_meant(words, message, capsys):
    with pytest.raises(SystemExit):
        read_job([*TRAIN, "--grid", "space.yaml", *words])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], TRAIN, [*TRAIN, "--grid", "space.yaml", "--magic", "1"]])
def test_invalid_command_lines_end_with_status_4(words, capsys):
    with pytest.raises(SystemExit) as ended:
        read_job(words)
    assert ended.value.code == 4
    assert len(capsys.readouterr().err.splitlines()) == 1
