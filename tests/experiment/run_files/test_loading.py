import errno
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import experiment
from experiment.results.result import Result
from experiment.run_files import loading
from experiment.run_files.format import FORMAT
from experiment.run_files.journal import Journal, JournalDamaged, encode_line, read_journal
from experiment.run_files.loading import (
    RunReader,
    find_run,
    find_runs,
    load,
    opened,
)
from experiment.run_files.manifest import write_manifest, write_result
from search.algorithms import Random
from search.direction import Direction
from search.errors import InvalidArgument
from search.grid import PointSearch
from search.grouped import Grouped
from search.searcher import Problem
from search.space.groups import union
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Outcome
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.locations import Location
from tests.experiment.driver.searches import Cluster, Search, searchers, steps
from tests.experiment.runs import (
    BOUNDS,
    TRACEBACK,
    begun,
    begun_at,
    make_manifest,
    make_run,
    make_search,
    make_spec,
)
from tests.properties import examples


def read_run(run):
    with opened(run) as reader:
        return loading.read_run(reader.paths)


def read_manifest(run):
    with opened(run) as reader:
        return loading.read_manifest(reader.paths)


def place(path):
    return Location.parse(path)


def refusal(run, read=load):
    """Return why a run is refused: one sentence."""
    with pytest.raises(InvalidArgument) as caught:
        read(run)
    message = str(caught.value)
    assert message.startswith("run: expected the folder of a run")
    assert "\n" not in message
    return message


def segment(root):
    [path] = RunPaths(root).journal.glob("*.jsonl")
    return path


def table(result):
    return {trial.id: (trial.status, trial.value) for trial in result.trials}


def test_a_finished_run_is_read_as_it_was(tmp_path):
    root = make_run(tmp_path, trials=3)
    result = load(root)
    assert (result.direction, result.objective, result.total) == ("max", "accuracy", 3)
    assert (result.logdir, result.problem) == (str(root), None)
    assert result.space == Space.of_grid(
        {"learning_rate": [0.01, 0.02, 0.03], "optimizer": ["adam"]}
    )
    first, failed, best = result.trials
    assert result.best is best
    assert (first.id, first.status, first.value, first.error) == (0, "finished", 0.001, None)
    assert first.params == {"learning_rate": 0.01, "optimizer": "adam"}
    assert first.metrics == {"accuracy": 0.001, "loss": 0.999}
    assert (first.seconds, first.logdir) == (2.5, str(root / "trials" / "000000"))
    assert Path(first.logdir, "stdout.log").read_text() == "trial 0 says hello\n"
    assert (failed.id, failed.status, failed.value, failed.metrics) == (1, "failed", None, {})
    assert (failed.error.kind, failed.error.message) == ("user error", "ValueError: too large")
    assert failed.error.traceback == TRACEBACK


def test_a_run_of_each_kind_is_read(tmp_path):
    evolution = read_run(make_run(tmp_path, trials=8, generations=True, direction="min"))
    assert evolution.manifest.call == "evolutionary_search"
    assert evolution.result.best.id == 0
    assert evolution.result.space == Space.of_bounds(BOUNDS)
    assert len(evolution.result) == evolution.result.total == 8
    points = read_run(make_run(tmp_path, points=[{"x": 1}, {"x": (2,), "y": None}], failed=()))
    assert points.result.space is None
    assert [repr(trial.params) for trial in points.result.trials] == [
        "{'x': 1}",
        "{'x': (2,), 'y': None}",
    ]
    randomly = read_run(make_run(tmp_path, trials=5, call="random_search"))
    assert randomly.manifest.algorithm == {"type": "random", "samples": 5}
    assert len(randomly.result) == 5


def test_each_group_of_a_search_has_its_own_space(tmp_path):
    spaces = {
        "eu": Space({"rate": Float(1e-5, 1e-3, log=True), "units": Integer(1, 8)}),
        "us": Space({"rate": Float(0.1, 1.0, log=True), "units": Integer(8, 64)}),
    }
    each, space = Grouped(Random(), spaces, by="region"), union(spaces, "region")
    problem = Problem(space=space, samples=30, rng=random.Random(7))
    algorithm = each.to_json() | {"samples": 30}
    search = make_spec("search_each", each.start(problem), space, algorithm=algorithm)
    why = "'us': the space has no more configurations"
    result = load(make_run(tmp_path, failed=(), search=search, exhausted=why, ended=False))
    assert result.exhausted == why
    parts = result.split("region")
    assert {group: part.space for group, part in parts.items()} == spaces
    shares = parts["eu"].importance().set_index("hyperparameter")["importance"]
    assert shares["region"] == 0.0
    assert shares["rate"] > 0.0
    assert parts["eu"].exhausted is None  # which is about the other group
    assert [len(part) for part in parts.values()] == [30, 30]


def test_a_hyperparameter_that_names_no_groups_splits_trials_of_the_same_space(tmp_path):
    result = load(make_run(tmp_path))
    assert result.split("optimizer")["adam"].space == result.space


def test_an_active_run_has_trials_in_flight(tmp_path):
    run = read_run(make_run(tmp_path, trials=6, running=(2, 4), ended=False))
    assert not run.ended
    assert [attempt.trial.id for attempt in run.running] == [2, 4]
    assert run.running[0].trial.params == {"learning_rate": 0.03, "optimizer": "adam"}
    assert table(run.result).keys() == {0, 1, 3, 5}
    assert (run.result.total, run.result.problem) == (6, None)
    assert run.result.summary().startswith("4 of 6 trials, 1 failed, best accuracy 0.006")


def test_a_run_that_ended_early_has_a_problem_and_no_trials_in_flight(tmp_path):
    run = read_run(make_run(tmp_path, trials=6, running=(2,), problem="interrupted"))
    assert run.ended
    assert run.running == []
    assert run.result.problem == "interrupted"
    assert table(run.result)[2] == ("cancelled", None)


@pytest.mark.parametrize(("final", "total"), [(9, 9), (None, 6)])
def test_the_number_of_trials_of_an_ended_search_is_that_at_its_end(tmp_path, final, total):
    root = make_run(tmp_path, trials=6)
    change(root / "result.json", total=final)
    assert load(root).total == total


def test_trials_in_flight_at_a_killed_driver_are_not_in_flight_after_the_end(tmp_path):
    root = make_run(tmp_path, trials=3, running=(2,), ended=False)
    write_result(RunPaths(root), Result([], Direction.MAX, str(root)))
    assert read_run(root).running == []


def test_a_run_without_a_journal_has_no_trials_yet(tmp_path):
    paths = RunPaths(tmp_path)
    write_manifest(paths, make_manifest(make_search(3)))
    for _ in range(2):
        run = read_run(tmp_path)
        assert (run.result.trials, run.running, run.ended) == ([], [], False)
        assert (run.result.total, run.result.best) == (3, None)
        Journal(paths.journal).close()


def test_the_objectives_name_comes_from_trials_then_from_the_user_then_is_none(tmp_path):
    named = load(make_run(tmp_path, trials=3, optimization_key="loss"))
    assert named.objective == "accuracy"
    asked = load(make_run(tmp_path, trials=3, failed=range(3), optimization_key="loss"))
    assert asked.objective == "loss"
    nobody = load(make_run(tmp_path, trials=3, failed=range(3), optimization_key=None))
    assert nobody.objective == "metric"


def test_values_that_json_lacks_are_read_back(tmp_path):
    params = {"layers": (64, (32,)), "norm": float("inf"), "n": 2**70, "o": {"float": [None]}}

    def outcome_of(trial):
        metrics = {"a": 0.5, "nan": float("nan"), "inf": float("-inf")}
        return Outcome(trial.id, "finished", 0.5, "a", metrics, seconds=0.1)

    result = load(make_run(tmp_path, points=[params], outcome_of=outcome_of))
    assert repr(result.trials[0].params) == repr(params)
    assert repr(result.trials[0].metrics) == "{'a': 0.5, 'nan': nan, 'inf': -inf}"


def test_a_space_with_a_long_range_is_read_at_once(tmp_path):
    space = Space({"seed": Choice(range(10**9))})
    write_manifest(RunPaths(tmp_path), make_manifest(make_spec("launch", PointSearch([]), space)))
    assert load(tmp_path).space == space


def test_a_trial_that_was_lost_has_the_folder_of_its_last_attempt(tmp_path):
    root = make_run(tmp_path, trials=4, lost=(1, 2), failed=(2,))
    run = read_run(root)
    assert table(run.result).keys() == {0, 1, 2, 3}
    assert [Path(trial.logdir).name for trial in run.result.trials] == [
        "000000",
        "000001-2",
        "000002-2",
        "000003",
    ]
    assert all(Path(trial.logdir).is_dir() for trial in run.result.trials)
    assert [trial.id for trial in run.result.failed] == [2]


def test_a_lost_attempt_is_not_in_flight_and_the_next_one_is(tmp_path):
    search = Search(tmp_path, PointSearch([{"x": 0}, {"x": 1}]))
    write_manifest(search.paths, make_manifest(make_search(0, points=[{"x": 0}, {"x": 1}])))
    search.hello("1.0.0")
    search.ask("1.0.0")
    search.coordinator.ends.job_ended(1)
    assert read_run(tmp_path).running == []
    search.hello("2.0.0")
    search.ask("2.0.0")
    [attempt] = read_run(tmp_path).running
    assert (attempt.trial.id, attempt.number) == (0, 2)
    search.journal.close()


@examples(40)
@given(steps, searchers, st.booleans())
def test_the_folder_always_has_the_state_of_the_coordinator(steps, make_searcher, end):
    with tempfile.TemporaryDirectory() as folder:
        search = Search(Path(folder), make_searcher())
        specification = make_spec("launch", search.searcher, None)
        write_manifest(search.paths, make_manifest(specification))
        cluster, looks = Cluster(search, 3), RunReader(search.paths)
        for partition, action in steps:
            getattr(cluster, action)(partition)
            assert looks.state() == search.coordinator.trials.state
        if end:
            cluster.finish()
        run, coordinator = read_run(folder), search.coordinator
        search.journal.close()
    by_id = sorted(coordinator.trials.results, key=lambda result: result.id)
    assert run.result.trials == by_id
    out = [running.attempt for running in coordinator.trials.status.running]
    assert sorted(run.running, key=str) == sorted(out, key=str)
    assert run.result.best == coordinator.trials.status.best


def test_a_run_is_read_repeatedly(tmp_path):
    root = make_run(tmp_path, trials=4, lost=(2,), running=(3,), ended=False)
    path, data = segment(root), segment(root).read_bytes()
    reader = RunReader(RunPaths(root))
    for size in range(0, len(data) + 7, 7):
        path.write_bytes(data[:size])
        look, once = reader.read(), read_run(root)
        assert (look.result.trials, look.running) == (once.result.trials, once.running)
        assert (look.lost, look.ended) == (once.lost, once.ended)
    earlier = reader.read()
    trials = list(earlier.result.trials)
    with path.open("ab") as file:
        file.write(encode_line(FINISHED | {"attempt": 1, "outcome": OUTCOME | {"trial": 3}}))
    assert len(reader.read().result.trials) == len(trials) + 1
    assert earlier.result.trials == trials  # a look changes nothing of the one before
    path.write_bytes(data[: len(data) // 2] + b"\n")
    for _ in range(2):
        with pytest.raises(JournalDamaged):
            reader.read()
    path.write_bytes(data)
    assert reader.read().result.trials == trials


@pytest.mark.slow
@pytest.mark.contract
def test_a_run_cut_anywhere_is_read_as_it_was_then(tmp_path):
    root = make_run(tmp_path, trials=4, lost=(2,), running=(3,), ended=False)
    path, whole = segment(root), load(root)
    data = path.read_bytes()
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        ended = [
            record["outcome"]["trial"]
            for record in read_journal(path.parent)
            if record["event"] == "finished"
        ]
        assert load(root).trials == [trial for trial in whole.trials if trial.id in ended]
    assert load(root).trials == whole.trials


def test_a_run_is_read_while_another_process_writes_it(tmp_path):
    root = make_run(tmp_path, trials=100, lost=(5,), running=(7,), ended=False)
    path, whole = segment(root), load(root)
    lines = tmp_path / "lines"
    path.rename(lines)
    path.touch()
    program = """
        import os, sys
        data = open(sys.argv[1], "rb").read()
        target = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
        for start in range(0, len(data), 3):
            os.write(target, data[start : start + 3])
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(lines), str(path)]
    before = 0
    with subprocess.Popen(command) as writer:
        while writer.poll() is None:
            trials = load(root).trials
            assert trials == [trial for trial in whole.trials if trial in trials]
            assert before <= len(trials)
            before = len(trials)
    assert writer.returncode == 0
    assert load(root).trials == whole.trials


def test_a_moved_run_is_read_at_its_new_place(tmp_path):
    old = make_run(tmp_path / "a", trials=3)
    new = tmp_path / "b ü" / "moved"
    new.parent.mkdir()
    shutil.move(old, new)
    result = load(new)
    assert result.logdir == str(new)
    for trial in result.trials:
        assert Path(trial.logdir).parent == new / "trials"
        assert Path(trial.logdir, "trial.json").is_file()
    assert len(result) == 3


def test_a_run_can_be_given_by_any_kind_of_path_or_its_result(tmp_path, monkeypatch):
    root = make_run(tmp_path / "runs", trials=3)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(root.parent)
    for name in (
        root,
        str(root),
        f"{root}/",
        f"{root}/trials/..",
        root.name,
        f"./{root.name}",
        f"~/runs/{root.name}",
        Path("~", "runs", root.name),
        load(root),
    ):
        assert load(name).logdir == str(root)
        assert find_run(name) == place(root)


def test_loading_is_public(tmp_path):
    assert experiment.load is load
    assert experiment.load(make_run(tmp_path, trials=3)).best.id == 2


def test_a_run_that_is_loaded_again_has_new_trials(tmp_path):
    root = make_run(tmp_path, trials=4, running=(3,), ended=False)
    early = load(root)
    record = {
        "event": "finished",
        "at": 1.0,
        "attempt": 1,
        "outcome": msgspec.json.decode((root / "trials/000002/outcome.json").read_bytes())
        | {"trial": 3},
    }
    with segment(root).open("ab") as journal:
        journal.write(encode_line(record))
    assert table(load(early)) == table(early) | {3: ("finished", 0.003)}


def test_several_segments_are_one_journal(tmp_path):
    root = make_run(tmp_path, trials=4)
    whole, lines = load(root), segment(root).read_bytes().splitlines(keepends=True)
    (root / "journal" / "000001.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:9])
    resumed = encode_line(begun(3, trials=4))
    (root / "journal" / "000002.jsonl").write_bytes(resumed + b"".join(lines[3:]))
    assert load(root).trials == whole.trials


def test_files_that_are_no_segments_are_skipped(tmp_path):
    root = make_run(tmp_path, trials=3)
    whole = load(root)
    for name in ("._000001.jsonl", "000001 (copy).jsonl", "000002.jsonl.swp", "notes.txt"):
        (root / "journal" / name).write_bytes(b"nothing of ours\n")
    assert load(root).trials == whole.trials


def test_a_missing_folder_is_no_run(tmp_path):
    missing = tmp_path / "nowhere"
    assert refusal(missing) == (
        f"run: expected the folder of a run, got {str(missing)!r}, which is no folder"
    )


def test_a_file_is_no_run(tmp_path):
    file = tmp_path / "file"
    file.touch()
    assert refusal(file).endswith(f"got {str(file)!r}, which is no folder")
    assert refusal(file / "below").endswith("which is no folder")


def test_a_folder_without_a_manifest_is_no_run(tmp_path):
    assert refusal(tmp_path).endswith(
        f"got {str(tmp_path)!r}, without a manifest.json; no search has started to write there"
    )
    root = make_run(tmp_path, trials=3)
    assert f"{str(root / 'trials')!r}, without a manifest.json" in refusal(root / "trials")


def test_the_refusal_of_a_folder_of_runs_names_the_newest(tmp_path):
    first = make_run(tmp_path, trials=3)
    assert refusal(tmp_path).endswith(
        f"got {str(tmp_path)!r}, which is a folder of runs; "
        f"it holds 1 run, the newest is {str(first)!r}"
    )
    begun_at(make_run(tmp_path, trials=3), 1)
    assert refusal(tmp_path).endswith(f"it holds 2 runs, the newest is {str(first)!r}")


@pytest.mark.parametrize(
    "run", [None, "", 5, 1.5, True, b"", b"/tmp", ["/tmp"], {"logdir": "/tmp"}, object], ids=repr
)
def test_a_value_that_is_no_path_is_no_run(run):
    assert refusal(run).endswith(f", got {run!r}")


class BytesPath:
    def __fspath__(self):
        return b"/tmp"


def test_a_path_of_bytes_is_no_run():
    assert refusal(BytesPath()).endswith("got b'/tmp'")


@pytest.mark.parametrize("run", ["a\0b", "\udcff", "a\nb", "\x1b[31m"], ids=ascii)
def test_odd_names_are_shown_in_one_printable_line(run):
    message = refusal(run)
    assert message.isprintable()
    assert "which is no folder" in message


def test_a_name_that_is_too_long_is_cut_and_called_unreadable():
    message = refusal("x" * 10_000)
    assert len(message) < 500
    assert "that cannot be read: File name too long" in message


PICKLE = pickle.dumps({"format": 1, "path": Path("/nowhere")})
NO_JSON = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"1",
    b"\0" * 100,
    b"\xff\xfe{",
    b'{"format": 1, "name": "\xff"}',
    b'{"format": 1, "x": ' + b"[" * 100_000,
    b"[" * 100_000,
    PICKLE,
]


@pytest.mark.parametrize(
    "data", [*NO_JSON, b'{"name": "x"}', b'{"format": "1"}'], ids=lambda data: repr(data[:20])
)
def test_an_invalid_manifest_is_refused(tmp_path, data):
    root = make_run(tmp_path, trials=3)
    (root / "manifest.json").write_bytes(data)
    for read in (load, read_run, read_manifest):
        assert f"{str(root)!r}, whose manifest.json cannot be used: " in refusal(root, read)


def test_a_cut_manifest_is_refused_wherever_it_ends(tmp_path):
    root = make_run(tmp_path, trials=3)
    path = root / "manifest.json"
    data = path.read_bytes().rstrip()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        assert f"{str(root)!r}, whose manifest.json cannot be used: " in refusal(root)
    path.write_bytes(data)
    assert len(load(root)) == 3


def change(path, **changes):
    data = json.loads(path.read_bytes()) | changes
    path.write_text(json.dumps({name: v for name, v in data.items() if v is not ...}))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": None},
        {"name": ...},
        {"direction": "up"},
        {"trials": "3"},
        {"space": []},
        {"space": {}},
        {"space": {"x": {"type": "complex"}}},
        {"space": {"x": {"type": "float", "low": 0.0, "high": 1.0, "log": True}}},
        {"space": {"": {"type": "choice", "values": [1]}}},
        {"versions": {"python": 3}},
        {"seed": 0.5},
    ],
    ids=str,
)
def test_a_manifest_with_invalid_fields_is_refused(tmp_path, changes):
    root = make_run(tmp_path, trials=3)
    change(root / "manifest.json", **changes)
    assert f"{str(root)!r}, whose manifest.json cannot be used: " in refusal(root)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("manifest.json", {"name": ..., "space": "new"}), ("result.json", {"failed": ...})],
)
def test_a_newer_format_is_refused_with_any_other_fields(tmp_path, name, changes):
    root = make_run(tmp_path, trials=3)
    change(root / name, format=FORMAT + 1, **changes)
    assert refusal(root).endswith(
        f"got {str(root)!r}, of format {FORMAT + 1}, while this version reads up to {FORMAT}; "
        "upgrade spark-tf-experiment"
    )


def test_unknown_fields_of_the_same_format_are_ignored(tmp_path):
    root = make_run(tmp_path, trials=3)
    change(root / "manifest.json", colour="blue")
    change(root / "result.json", colour="blue")
    assert len(load(root)) == 3


@pytest.mark.parametrize("data", NO_JSON, ids=lambda data: repr(data[:20]))
def test_an_invalid_summary_is_refused(tmp_path, data):
    root = make_run(tmp_path, trials=3)
    (root / "result.json").write_bytes(data)
    assert f"{str(root)!r}, whose result.json cannot be used: " in refusal(root)
    assert read_manifest(root).name == "digits"


@pytest.mark.parametrize(
    "changes", [{"problem": 5}, {"trials": None}, {"failed": ...}, {"format": "1"}], ids=str
)
def test_a_summary_with_invalid_fields_is_refused(tmp_path, changes):
    root = make_run(tmp_path, trials=3)
    change(root / "result.json", **changes)
    assert f"{str(root)!r}, whose result.json cannot be used: " in refusal(root)


def test_a_changed_journal_is_refused_with_file_and_line(tmp_path):
    root = make_run(tmp_path, trials=3)
    path = segment(root)
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines):
        changed = [*lines[:number], line.replace(b"e", b"E", 1), *lines[number + 1 :]]
        path.write_bytes(b"".join(changed))
        with pytest.raises(JournalDamaged) as caught:
            load(root)
        assert f"{path}, line {number + 1}: the checksum does not match" in str(caught.value)


PLANNED = {
    "event": "planned",
    "at": 1.0,
    "slot": "1.0.0",
    "attempt": 1,
    "trial": {"id": 0, "params": {}},
}
OUTCOME = {
    "trial": 0,
    "status": "finished",
    "value": 1.0,
    "objective": "a",
    "metrics": {},
    "error": None,
    "seconds": 0.0,
}
FINISHED = {"event": "finished", "at": 2.0, "attempt": 1, "outcome": OUTCOME}


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"event": "other"},
        {"event": None},
        FINISHED | {"outcome": OUTCOME | {"trial": 5}},
        FINISHED | {"outcome": OUTCOME | {"status": "done"}},
        FINISHED | {"outcome": OUTCOME | {"value": None}},
        FINISHED | {"outcome": OUTCOME | {"metrics": {"a": "much"}}},
        FINISHED | {"outcome": {}},
        FINISHED | {"outcome": None},
        FINISHED | {"attempt": "1"},
        PLANNED | {"trial": 1.5},
        PLANNED | {"trial": {"id": 0, "params": []}},
        PLANNED | {"trial": {"id": -1, "params": {}}},
        PLANNED | {"trial": {"id": 10**12, "params": {}}},
        PLANNED | {"trial": {"id": 0, "params": {"x": {"unknown": 1}}}},
        {name: value for name, value in PLANNED.items() if name != "attempt"},
        {name: value for name, value in PLANNED.items() if name != "at"},
        PLANNED | {"event": "waiting", "why": "tired"},
        PLANNED | {"event": "joined", "host": "a", "gpus": None},
        PLANNED | {"event": "selected", "selections": [{"trial": 0, "accepted": True}]},
        PLANNED | {"event": "lost", "trial": None},
    ],
    ids=str,
)
def test_an_invalid_record_is_refused_with_its_number(tmp_path, record):
    write_manifest(RunPaths(tmp_path), make_manifest(make_search(3)))
    journal = tmp_path / "journal" / "000001.jsonl"
    journal.parent.mkdir()
    whole = encode_line(begun()) + encode_line(PLANNED) + encode_line(FINISHED)
    journal.write_bytes(whole)
    assert table(load(tmp_path)) == {0: ("finished", 1.0)}
    journal.write_bytes(whole + encode_line(record) + encode_line(PLANNED))
    with pytest.raises(JournalDamaged) as caught:
        load(tmp_path)
    assert str(caught.value).startswith(f"{journal.parent}, record 4: ")
    assert "\n" not in str(caught.value)


def test_the_first_of_two_outcomes_of_a_trial_counts(tmp_path):
    write_manifest(RunPaths(tmp_path), make_manifest(make_search(3)))
    with Journal(tmp_path / "journal") as journal:
        for record in (
            begun(),
            PLANNED,
            FINISHED,
            FINISHED | {"outcome": OUTCOME | {"value": 2.0}},
        ):
            journal.append(record)
    assert table(load(tmp_path)) == {0: ("finished", 1.0)}


@pytest.mark.parametrize("name", ["manifest.json", "result.json", "journal/000001.jsonl"])
def test_an_unreadable_file_is_refused_with_the_reason(tmp_path, name):
    root = make_run(tmp_path, trials=3)
    (root / name).unlink()
    (root / name).mkdir()
    assert refusal(root).endswith(f"{str(root)!r}, that cannot be read: Is a directory")


def test_a_file_in_place_of_the_journal_is_no_empty_journal(tmp_path):
    root = make_run(tmp_path, trials=3)
    shutil.rmtree(root / "journal")
    (root / "journal").touch()
    assert refusal(root).endswith("that cannot be read: Not a directory")


def test_a_file_in_place_of_the_trials_is_refused_where_outcomes_are_counted(tmp_path):
    root = make_run(tmp_path, trials=3)
    run = read_run(root)
    assert loading.ignored_in(run) == []
    shutil.rmtree(root / "trials")
    (root / "trials").touch()
    assert refusal(run, loading.ignored_in).endswith("that cannot be read: Not a directory")


def test_a_folder_that_cannot_be_listed_is_refused_with_the_reason(tmp_path, monkeypatch):
    def listdir(self, location):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(LocalFiles, "listdir", listdir)
    assert refusal(tmp_path).endswith(f"{str(tmp_path)!r}, that cannot be read: Permission denied")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize(
    "name", [".", "manifest.json", "result.json", "journal", "journal/000001.jsonl"]
)
def test_a_file_without_read_permission_is_refused_with_the_reason(tmp_path, name):
    root = make_run(tmp_path, trials=3)
    (root / name).chmod(0)
    try:
        assert refusal(root).endswith(f"{str(root)!r}, that cannot be read: Permission denied")
    finally:
        (root / name).chmod(0o700)


def test_runs_are_found_in_the_order_of_age_the_newest_last(tmp_path):
    assert find_runs(place(tmp_path)) == []
    with pytest.raises(FileNotFoundError):
        find_runs(place(tmp_path / "nowhere"))
    (tmp_path / "other").mkdir()
    (tmp_path / "manifest.json").touch()
    second, third, first = (
        begun_at(make_run(tmp_path, trials=1, failed=()), time) for time in (20, 30, 10)
    )
    assert find_runs(place(tmp_path)) == [place(root) for root in (first, second, third)]


def test_runs_that_began_in_the_same_second_are_ordered_by_their_manifests(tmp_path):
    roots = [begun_at(make_run(tmp_path, trials=1, failed=()), 10) for _ in range(3)]
    for root, time in zip(roots, (20, 30, 10), strict=True):
        os.utime(root / "manifest.json", (time, time))
    assert find_runs(place(tmp_path)) == [place(root) for root in (roots[2], roots[0], roots[1])]


def test_a_run_is_found_without_reading_it(tmp_path):
    root = make_run(tmp_path, trials=3)
    (root / "manifest.json").write_bytes(b"{")
    segment(root).write_bytes(b"damaged\n")
    assert find_run(root) == place(root)
    assert find_runs(place(tmp_path)) == [place(root)]


class Payload:
    def __reduce__(self):
        return (Path.touch, (self.target,))


def test_nothing_is_unpickled_and_nothing_heavy_is_imported(tmp_path):
    root = make_run(tmp_path, trials=4, lost=(2,))
    payload = Payload()
    payload.target = tmp_path / "unpickled"
    for trial in (root / "trials").iterdir():
        (trial / "outcome.json").write_bytes(pickle.dumps(payload))
    (root / "function.pkl").write_bytes(pickle.dumps(payload))
    program = """
        import os, sys
        import experiment

        def watch(event, arguments):
            if event.startswith("pickle"):
                os._exit(7)

        sys.addaudithook(watch)
        print(len(experiment.load(sys.argv[1])))
        heavy = {"tensorflow", "pyspark", "grpc", "pandas", "tensorboard", "matplotlib"}
        print(sorted(heavy & set(sys.modules)))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(root)]
    output = subprocess.run(command, capture_output=True, text=True)
    assert (output.returncode, output.stdout) == (0, "4\n[]\n"), output.stderr
    for name in ("manifest.json", "result.json"):
        (root / name).write_bytes(pickle.dumps(payload))
        refusal(root)
    assert not payload.target.exists()


@pytest.mark.parametrize("run", ["dbfs:/runs/a", "s3a:/x", "abfss:/x", "wasbs:/x"])
def test_a_url_that_lacks_a_slash_is_no_run_of_this_host(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument) as caught:
        load(run)
    assert (caught.value.name, caught.value.expected) == ("run", "a path or a URL")
