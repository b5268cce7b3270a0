"""No data from the network or from storage is unpickled, or run, in the driver's process.

The first half walks the code for what could do so; the second plants a pickle that would tell.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import pickle
import re
import shutil
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

import experiment
from experiment.cli.commands import main
from experiment.setup.resuming import manifest_of, read_past
from search.errors import ExperimentError
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.locations import Location
from spark_jobs.trial.events.event_file import EventFile
from tests import ROOT
from tests.experiment.runs import make_run, make_search
from tests.experiment.waiting import wait_until

PACKAGES = ("search", "spark_jobs", "experiment")

UNPICKLERS = (
    "_pickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "multiprocessing",
    "pickle", "pyspark.cloudpickle", "pyspark.serializers", "ruamel", "shelve", "torch", "xmlrpc",
    "yaml",
)  # fmt: skip
"""Modules that turn data into objects or code."""

HARMLESS = ("dump", "dumps", "HIGHEST_PROTOCOL")
"""Their names that do not."""

RUNNERS = re.compile(
    r"__import__|compile|eval|exec|runpy\..+|subprocess\..+|pty\..+"
    r"|importlib\.(import_module|reload|machinery\..+|util\.module_from_spec)"
    r"|os\.(exec|spawn|posix_spawn|system|popen).*|asyncio\.create_subprocess.*"
)
"""Calls that run code or commands."""

LOADERS = (
    # Spark's, which send pickles to the driver
    "accumulator", "collect", "collectAsMap", "rdd", "toLocalIterator", "toPandas",
    # numpy's, pandas', Keras' and TensorFlow's
    "load", "load_model", "load_weights", "model_from_json", "numpy_function", "py_function",
    "read_hdf", "read_pickle", "saved_model",
    # of all modules like pickle
    "Unpickler", "full_load", "loads", "unsafe_load",
)  # fmt: skip
"""Attributes of any object."""

HOOKS = ("allow_pickle", "custom_objects", "dec_hook", "ext_hook", "safe_mode")
"""Arguments."""

SAFE_JSON = "JSON of a file that the command line of a job names"
SAFE_YAML = "plain values only, of the command line of a job and the files that it names"
PLAIN_VALUES = "makes hyperparameters and metrics of what JSON has, and nothing else"
COMMAND = "a command of our own, none of whose words is data of a run"
SETS_LIMIT = "sets a limit in the trial's process, and loads nothing"
LOOKS_FOR_GPU = "looks for a GPU in the trial's process, and loads nothing"
ALLOWED = {
    ("experiment/display/tensorboard_server.py", "tensorboard", "subprocess.Popen"): COMMAND,
    ("spark_jobs/messages.py", "decode", "dec_hook"): PLAIN_VALUES,
    ("spark_jobs/messages.py", "from_json", "dec_hook"): PLAIN_VALUES,
    ("spark_jobs/messages.py", "prepare", "dec_hook"): PLAIN_VALUES,
    ("experiment/run_files/loading.py", "_read_json", "dec_hook"): PLAIN_VALUES,
    ("spark_jobs/zygote/process.py", "OwnProcess.__init__", "subprocess.Popen"): COMMAND,
    ("spark_jobs/warm/asking.py", "_start_keeper", "subprocess.run"): COMMAND,
    ("spark_jobs/relay/relayed_channel.py", "_start", "subprocess.run"): COMMAND,
    (
        "spark_jobs/warm/packets.py",
        "Answer.from_json",
        "json.loads",
    ): "JSON: a number, a text, a bool",
    ("spark_jobs/warm/packets.py", "Request.from_json", "json.loads"): "JSON: a number",
    (
        "spark_jobs/session/classic.py",
        "ClassicSession.data_settings",
        "json.loads",
    ): "JSON: settings of Hadoop, from the driver's own JVM",
    ("spark_jobs/warm/keeper.py", "Keeper._start_importer", "os.posix_spawn"): COMMAND,
    ("spark_jobs/zygote/zygote.py", "_become_fresh_interpreter", "os.execve"): COMMAND,
    ("spark_jobs/trial/trial_process.py", "evaluate", "pickle.loads"): (
        "the train function, which comes from the driver, in the process of the trial"
    ),
    ("spark_jobs/calls/calls.py", "_unpickled", "pickle.loads"): (
        "a call of an executor, which comes from the driver, in the process of the trial"
    ),
    ("experiment/setup/function/train_function.py", "_Pickler", "cloudpickle.Pickler"): (
        "a base class, which writes pickles and loads nothing"
    ),
    ("experiment/background/joblib_backend.py", "", "joblib.parallel.ParallelBackendBase"): (
        "a base class, which loads nothing"
    ),
    ("spark_jobs/session/session.py", "importing.run", "pickle.loads"): (
        "a function of ours, which comes from the driver, in a task of an executor"
    ),
    ("spark_jobs/processes.py", "import_modules", "importlib.import_module"): (
        "modules that the caller of a search names in `preload`, in zygote or trial"
    ),
    ("spark_jobs/zygote/preparing.py", "rehearse", "importlib.import_module"): (
        "numpy, in the zygote"
    ),
    ("spark_jobs/doctor/checks.py", "_run_python", "subprocess.run"): COMMAND,
    (
        "experiment/tab/entry-point/spark_tf_experiment_tab/__init__.py",
        "_check_package",
        "importlib.machinery.PathFinder.find_spec",
    ): ("looks for our own package, and runs nothing"),
    ("spark_jobs/submit.py", "_check_package", "importlib.machinery.PathFinder.find_spec"): (
        "finds a file of the package `experiment`, and runs nothing"
    ),
    ("spark_jobs/trial/memory/gpu_share.py", "_limit_torch", "torch.cuda"): SETS_LIMIT,
    ("spark_jobs/trial/memory/gpu_share.py", "_limit_torch", "torch.cuda.is_available"): SETS_LIMIT,
    (
        "spark_jobs/trial/memory/gpu_share.py",
        "_limit_torch",
        "torch.cuda.set_per_process_memory_fraction",
    ): (SETS_LIMIT),
    ("spark_jobs/trial/random_numbers.py", "_seed", "torch.manual_seed"): (
        "seeds a generator in the trial's process, and loads nothing"
    ),
    ("spark_jobs/trial/precision.py", "_has_gpu", "torch.cuda"): LOOKS_FOR_GPU,
    ("spark_jobs/trial/precision.py", "_has_gpu", "torch.cuda.is_available"): LOOKS_FOR_GPU,
    ("experiment/large_batches/batch_size.py", "_measuring", "subprocess.Popen"): COMMAND,
    ("experiment/large_batches/measuring.py", "main", "pickle.load"): (
        "a function and arrays, which come from the process that starts this one, over a descriptor"
    ),
    (
        "experiment/setup/function/imports.py",
        "_Walk._look_at_file",
        "importlib.machinery.SourceFileLoader",
    ): ("the user's own modules on the driver, whose code is read and never run"),
    ("experiment/setup/function/modules.py", "_find_in", "importlib.machinery.ModuleSpec"): (
        "describes a folder, and runs nothing"
    ),
    ("spark_jobs/processes.py", "import_guessed", "importlib.import_module"): (
        "modules that the train function of a search imports, in zygote or trial"
    ),
    ("experiment/__init__.py", "__getattr__", "importlib.import_module"): (
        "two modules of this package, named in the code"
    ),
    (
        "spark_jobs/strategies/mirrored/batches.py",
        "Parts._tell_if_uneven.tell",
        "tf.numpy_function",
    ): ("in the trial's process: calls a function of this package"),
    ("experiment/cli/job_options.py", "_file", "json.loads"): SAFE_JSON,
    ("experiment/cli/job_options.py", "_referred", "importlib.import_module"): (
        "the module that the command line of a job names"
    ),
    ("experiment/cli/job_options.py", "_yaml", "ruamel.yaml.YAML"): SAFE_YAML,
    ("experiment/cli/job_options.py", "_yaml", "YAML(typ='safe', pure=True).load"): SAFE_YAML,
    ("experiment/cli/job_options.py", "_yaml", "ruamel.yaml.error.YAMLError"): SAFE_YAML,
    ("experiment/cli/job_options.py", "_send_modules_of", "cloudpickle.register_pickle_by_value"): (
        "how modules are written, of the user who has named one"
    ),
    (
        "experiment/setup/function/sent_modules.py",
        "is_sent",
        "cloudpickle.list_registry_pickle_by_value",
    ): "the names of modules, and loads nothing",
}


def uses(source: str) -> Iterator[tuple[str, str]]:
    """Yield names that could turn data into code, each with the function that uses it."""
    tree = ast.parse(source)
    imported = {}  # full names by the names in this module
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                whole = name.name if name.asname else name.name.partition(".")[0]
                imported[name.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                imported[name.asname or name.name] = f"{node.module}.{name.name}"
    yield from _uses(tree, "", imported)


def _uses(node: ast.AST, where: str, imported: dict[str, str]) -> Iterator[tuple[str, str]]:
    def full(node: ast.expr) -> str:
        first, dot, rest = ast.unparse(node).partition(".")
        return imported.get(first, first) + dot + rest

    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            where = f"{where}.{name}".lstrip(".")
        case ast.ImportFrom(module=module, names=names):
            for name in names:
                if _unpickles(f"{module}.{name.name}"):
                    yield where, f"{module}.{name.name}"
        case ast.Call(func=ast.Name("getattr"), args=[of, ast.Constant(name), *_]):
            if _unpickles(f"{full(of)}.{name}"):
                yield where, f"{full(of)}.{name}"
        case ast.Call(func=function) if RUNNERS.fullmatch(full(function)):
            yield where, full(function)
        case ast.keyword(arg=name) if name in HOOKS:
            yield where, name
        case ast.Attribute() if _unpickles(full(node)):
            yield where, full(node)
    for child in ast.iter_child_nodes(node):
        yield from _uses(child, where, imported)


def _unpickles(name: str) -> bool:
    last = name.rpartition(".")[2]
    if name.startswith(tuple(f"{module}." for module in UNPICKLERS)):
        return last not in HARMLESS
    ours = name.startswith(tuple(f"{package}." for package in PACKAGES))
    return last in LOADERS and not ours and name != "gc.collect"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle\ndef f(): return pickle.loads(b)", ("f", "pickle.loads")),
        ("import pickle as p\nclass C:\n def f(self): p.Unpickler(b)", ("C.f", "pickle.Unpickler")),
        ("from cloudpickle import loads as read", ("", "cloudpickle.loads")),
        ("def f():\n import dill\n g = dill.load", ("f", "dill.load")),
        ("import pickle\ngetattr(pickle, 'loads')(b)", ("", "pickle.loads")),
        ("import marshal, types\nmarshal.loads(b)", ("", "marshal.loads")),
        ("import numpy as np\nnp.load(f)", ("", "numpy.load")),
        ("import numpy as np\nnp.fromfile(f, allow_pickle=True)", ("", "allow_pickle")),
        ("import pandas\npandas.read_pickle(f)", ("", "pandas.read_pickle")),
        ("import keras\nkeras.saving.load_model(f)", ("", "keras.saving.load_model")),
        ("import yaml\nyaml.safe_load(f)", ("", "yaml.safe_load")),
        ("frame.collect()", ("", "frame.collect")),
        ("frame.rdd", ("", "frame.rdd")),
        ("eval('1')", ("", "eval")),
        ("exec(compile(s, '', 'exec'))", ("", "compile")),
        ("import subprocess as s\ns.run(c)", ("", "subprocess.run")),
        ("import os\nos.execvp(c, a)", ("", "os.execvp")),
        ("from os import system\nsystem(c)", ("", "os.system")),
        ("import importlib\nimportlib.import_module(n)", ("", "importlib.import_module")),
        ("import msgspec\nmsgspec.json.decode(b, dec_hook=f)", ("", "dec_hook")),
    ],
)
def test_the_walk_finds_calls_that_turn_data_into_code(source, found):
    assert found in list(uses(source))


def test_the_walk_ignores_other_code():
    source = "import gc, pickle, re\npickle.dumps(f)\ngc.collect()\nre.compile(p)\nself.run()"
    assert list(uses(source)) == []


def test_only_trials_and_executors_turn_data_into_objects_or_code():
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            found |= {(name, *use) for use in uses(path.read_text())}
    assert found == ALLOWED.keys()


class Marker:
    """A pickle that creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


@pytest.fixture
def mark(tmp_path):
    """The file that loading the pickle creates; checked to work."""
    path = tmp_path / "loaded"
    pickle.loads(pickle.dumps(Marker(path)))
    path.unlink()
    yield path
    assert not path.exists()


def planted(mark: Path) -> dict[str, bytes]:
    """Return contents of files with the marker."""
    data = pickle.dumps(Marker(mark))
    text = json.dumps({"event": "planned", "trial": 0, "py/object": pickle.dumps(mark, 0).decode()})
    return {
        "pickle": data,
        "text": pickle.dumps(Marker(mark), 0),
        "line": b"%08x %s\n" % (zlib.crc32(data), data),
        "json": b"%08x %s\n" % (zlib.crc32(text.encode()), text.encode()),
        "record": framed(data),
    }


def framed(data: bytes) -> bytes:
    """Return a record of an event file; its checksums are right."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    file = io.BytesIO()
    RecordWriter(file).write(data)
    return file.getvalue()


def look_at(run: Path) -> None:
    """Read a run in every way, ignoring refusals."""
    with contextlib.suppress(ExperimentError):
        experiment.load(run)
    with contextlib.suppress(ExperimentError):
        manifest_of(run)
    with contextlib.suppress(ExperimentError):
        read_past(LocalFiles(), Location.parse(str(run)), make_search(1))
    for command in ("show", "logs", "export --json", "export --csv", "stop"):
        name, *options = command.split()
        main([name, str(run), *(["0"] if name == "logs" else []), *options])
    main(["show", str(run), "0"])
    main(["list", str(run.parent)])
    main(["repair", str(run)])


@pytest.mark.slow
@pytest.mark.contract
def test_a_pickle_in_any_file_of_a_run_is_never_loaded(tmp_path, mark, capsys):
    whole = make_run(tmp_path / "whole", trials=1)
    checkpoint = whole / "trials" / "000000" / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "model.pkl").touch()
    (whole / "journal" / "000002.jsonl").touch()
    (whole / "stop").touch()
    names = [p.relative_to(whole).as_posix() for p in whole.rglob("*") if p.is_file()]
    assert len(names) >= 10, names
    for name in names:
        for kind, data in planted(mark).items():
            logdir = tmp_path / "runs"
            run = shutil.copytree(whole, logdir / "run")
            (run / name).write_bytes(data)
            look_at(run)
            assert not mark.exists(), (name, kind)
            shutil.rmtree(logdir)
    capsys.readouterr()


def test_tensorboard_loads_no_pickle(tmp_path, mark):
    run = make_run(tmp_path, trials=3)
    for folder in (run / "search", *(run / "trials").iterdir()):
        for kind, data in planted(mark).items():
            (folder / f"events.out.tfevents.9{kind}").write_bytes(data)
        with EventFile(folder, "text") as events:
            events.text("planted", planted(mark)["text"].decode())
        (folder / "projector_config.pbtxt").write_bytes(planted(mark)["pickle"])
    with experiment.tensorboard(run) as board:

        def get(path):
            with contextlib.suppress(urllib.error.HTTPError):
                with urllib.request.urlopen(f"{board.url}/{path}", timeout=60) as answer:
                    return answer.read()
            return b""

        wait_until(lambda: b"search" in get("data/runs"))
        for page in ("text/tags", "text/text?run=search&tag=planted", "hparams/experiment"):
            get(f"data/plugin/{page}")
        for page in ("scalars/tags", "histograms/tags", "custom_scalars/layout", "projector/runs"):
            get(f"data/plugin/{page}")
        wait_until(lambda: b"planted" in get("data/plugin/text/tags"))


def hostile_train(what, mark):
    import builtins
    import gc
    import pickle
    import sys
    from pathlib import Path

    import experiment

    class Marker:
        def __reduce__(self):
            return builtins.exec, (f"open({mark!r}, 'w').close()",)

    class Raised(Exception):
        __reduce__ = Marker.__reduce__

    data = pickle.dumps(Marker())
    if what == "return":
        return Marker()
    if what == "metrics":
        return {"value": 1.0, "other": Marker()}
    if what == "report":
        experiment.report(step=0, value=Marker())
    if what == "raise":
        raise Raised(Marker(), data)
    if what == "exit":
        sys.exit(Marker())
    if what == "print":
        sys.stdout.buffer.write(data)
    if what == "files":
        folder = Path(experiment.logdir())
        for name in ("outcome.json", "trial.json", "events.out.tfevents.1.x", "model.pkl"):
            (folder / name).write_bytes(data)
        Path(experiment.checkpoint_dir(), "model.pkl").write_bytes(data)
        (folder.parent.parent / "journal" / "000009.jsonl").write_bytes(data)
    if what == "accumulator":  # which PySpark loads in the driver
        from pyspark import accumulators

        class Fake:
            _value = Marker()

        accumulators._accumulatorRegistry[1 << 30] = Fake()
    if what == "channel":
        import grpc

        gc.collect()  # those of searches that ended
        clients = [o for o in gc.get_objects() if type(o).__name__ == "ChannelClient"]
        refusals = 0
        for client in clients:
            for call in client._methods.values():
                try:
                    call(data, timeout=30, metadata=client._metadata)
                except grpc.RpcError as error:
                    refusals += error.code() == grpc.StatusCode.INVALID_ARGUMENT
        return {"value": 1.0, "clients": len(clients), "refusals": refusals}
    return {"value": 1.0}


HOSTILE = {
    "return": "invalid value",
    "metrics": "invalid value",
    "report": "user error",
    "raise": "user error",
    "exit": "exit",
    "print": None,
    "files": None,
    "accumulator": None,
    "channel": None,
}
"""The actions of a hostile trial, each with its failure."""


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(13)
@pytest.mark.parametrize("isolation", ["process", "none"])
def test_nothing_of_a_hostile_trial_is_loaded_in_the_driver(spark, tmp_path, mark, isolation):
    points = {"what": list(HOSTILE), "mark": [str(mark)]}
    settings = {"optimization_key": "value", "logdir": tmp_path / "runs", "isolation": isolation}
    result = experiment.launch(spark, hostile_train, points, preload=(), **settings)
    kinds = {trial.params["what"]: trial.error and trial.error.kind for trial in result.trials}
    assert kinds == HOSTILE
    of_channel = result.trials[-1].metrics  # a process of its own knows of no channel
    assert bool(of_channel["clients"]) == (isolation == "none")
    assert of_channel["refusals"] == 3 * of_channel["clients"]
    look_at(Path(result.logdir))
    # The next search in the folder, with the same data, is not affected.
    again = experiment.launch(spark, lambda value: value, {"value": [1]}, preload=(), **settings)
    assert again.best.value == 1


@pytest.mark.slow
@pytest.mark.contract
def test_a_pickle_in_the_cache_of_a_host_is_never_loaded(sparks, tmp_path, mark):
    cache, table = tmp_path / "cache", tmp_path / "table.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2, 3]}), table)
    spark = sparks.get("local[2]", **{"spark.experiment.cache.folder": str(cache)})

    def train(path):
        import experiment

        return experiment.data.in_memory(path).num_rows

    def search():
        return experiment.launch(
            spark, train, {"path": [str(table)]}, logdir=tmp_path / "runs", preload=()
        )

    assert search().best.value == 3
    [copy] = cache.glob("*/table.arrow")
    copy.write_bytes(planted(mark)["pickle"])
    with pytest.raises(experiment.SearchFailed):
        search()
