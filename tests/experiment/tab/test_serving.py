"""The answers to the page's requests, about folders of runs as searches leave them."""

import json
import os
import shutil
from dataclasses import replace

import pytest
from tensorboard.plugins import base_plugin
from werkzeug.test import Client

import experiment
from experiment.run_files.journal import Journal, encode_line
from experiment.run_files.journal_records import Finished, Planned
from experiment.tab import serving, trial_page
from experiment.tab.plugin import Loader
from experiment.tab.shown import shown_space
from search.sequential.bayesian import DESIGN, BayesianOptimization
from search.space.spaces import Choice, Float, Space
from search.trial import Outcome, Trial
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.files import LocalFiles
from spark_jobs.trial.events.event_file import EventFile
from tests import ROOT
from tests.experiment.runs import TRACEBACK, begun, make_run, make_search, make_spec, mark_as_owned
from tests.search.fakes import started

RUN_OF_FORMAT_1 = ROOT / "tests" / "experiment" / "run_files" / "run_of_format_1"


@pytest.fixture
def make_tab(monkeypatch):
    monkeypatch.setattr(serving, "_LOOK_AGAIN", 0.0)
    return lambda logdir: Loader().load(base_plugin.TBContext(logdir=str(logdir)))


def get(tab, path, **query):
    answer = Client(tab.get_plugin_apps()[path]).get(path, query_string=query)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    return answer.status_code, json.loads(answer.data)


def trials(answer):
    columns = answer["columns"]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_it_is_inactive_without_a_run(make_tab, tmp_path):
    for logdir in ("", tmp_path, tmp_path / "missing", "hdfs://host/runs"):
        assert not make_tab(logdir).is_active()
    tab = make_tab(tmp_path)
    make_run(tmp_path)
    assert tab.is_active()
    assert tab.data_plugin_names() == ()


def test_the_folder_may_be_a_run_or_a_folder_of_runs(make_tab, tmp_path, monkeypatch):
    runs = [make_run(tmp_path / "runs", name=name) for name in ("one", "two")]
    (tmp_path / "runs" / "other").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    names = [run.name for run in runs]
    for logdir in (tmp_path / "runs", f"{tmp_path}/runs/", "~/runs"):
        assert [facts["name"] for facts in get(make_tab(logdir), "/runs")[1]] == sorted(names)
    assert [facts["name"] for facts in get(make_tab(runs[0]), "/runs")[1]] == [names[0]]


def test_a_copy_is_called_as_its_original(tmp_path):
    make_run(tmp_path, name="one")
    tab = Loader("hdfs://host/runs").load(base_plugin.TBContext(logdir=str(tmp_path)))
    [facts] = get(tab, "/runs")[1]
    assert facts["folder"] == f"hdfs://host/runs/{facts['name']}"


def test_the_facts_of_a_run_are_those_of_its_result(make_tab, tmp_path):
    run = make_run(tmp_path, lost=(3,))
    result = experiment.load(run)
    tab = make_tab(run)
    for facts in (get(tab, "/runs")[1][0], get(tab, "/run", run=run.name)[1]):
        assert facts["state"] == "finished"
        assert facts["counts"]["done"] == 6
        assert facts["counts"]["failed"] == 1
        assert facts["objective"] == result.objective == "accuracy"
        assert facts["best"]["trial"] == result.best.id
        assert facts["best"]["value"] == result.best.value
        assert eval(facts["best"]["python"]) == result.best.params
        assert facts["ended"] >= facts["created"]


def test_the_trials_are_those_of_the_result(make_tab, tmp_path):
    run = make_run(tmp_path, generations=True, trials=12)
    result = experiment.load(run)
    answer = get(make_tab(run), "/run", run=run.name)[1]
    rows = trials(answer)
    assert [row["id"] for row in rows] == [trial.id for trial in result]
    assert [row["value"] for row in rows] == [trial.value for trial in result]
    assert [row["status"] for row in rows] == [trial.status for trial in result]
    assert [row["generation"] for row in rows] == [0] * 4 + [1] * 4 + [2] * 4
    for name, values in answer["params"].items():
        assert values == [trial.params[name] for trial in result]
    assert rows[1]["why"] == "user error: ValueError: too large"
    assert all(row["start"] <= row["end"] for row in rows)
    assert answer["space"]["optimizer"]["values"] == ["adam", "sgd"]
    assert answer["space"]["learning_rate"]["log"]
    assert len(answer["selections"]) == 12


def test_only_what_is_new_is_sent_again(make_tab, tmp_path):
    run = make_run(tmp_path, running=(4,), ended=False)
    tab = make_tab(run)
    first = get(tab, "/run", run=run.name)[1]
    assert [row["status"] for row in trials(first)][4] == "running"
    again = get(tab, "/run", run=run.name, since=first["mark"])[1]
    assert trials(again) == again["selections"] == again["slot_events"] == again["lost"] == []
    assert not again["whole"]
    end = {"event": "finished", "at": 5.0, "attempt": 1}
    end["outcome"] = {"trial": 4, "status": "finished", "value": 0.5, "objective": "accuracy"}
    with (run / "journal" / "000001.jsonl").open("ab") as file:
        file.write(encode_line(end))
    later = get(tab, "/run", run=run.name, since=first["mark"])[1]
    assert [(row["id"], row["value"]) for row in trials(later)] == [(4, 0.5)]
    assert later["params"] == {"learning_rate": [0.05], "optimizer": ["adam"]}


def test_a_page_that_knows_too_much_gets_everything_anew(make_tab, tmp_path):
    run = make_run(tmp_path, ended=False)
    tab = make_tab(run)
    mark = get(tab, "/run", run=run.name)[1]["mark"]
    segment = run / "journal" / "000001.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:6]))
    answer = get(tab, "/run", run=run.name, since=mark)[1]
    assert answer["whole"]
    assert len(trials(answer)) < 6
    assert get(tab, "/run", run=run.name, since="nonsense")[1]["whole"]


def test_an_ended_run_that_is_resumed_is_read_again(make_tab, tmp_path):
    run = make_run(tmp_path)
    tab = make_tab(run)
    assert get(tab, "/runs")[1][0]["state"] == "finished"
    (run / "result.json").unlink()
    with Journal(run / "journal") as journal:
        lines = (run / "journal" / "000001.jsonl").read_bytes().count(b"\n")
        journal.append(begun(lines, 7))
        journal.append(Planned(Trial(6, {"learning_rate": 0.5}), 1, "2.0.0", at=9.0))
    [facts] = get(tab, "/runs")[1]
    assert (facts["state"], facts["counts"]["running"], facts["total"]) == ("unknown", 1, 7)


def test_a_run_that_ended_again_meanwhile_is_read_again(make_tab, tmp_path):
    run = make_run(tmp_path)
    tab = make_tab(run)
    assert get(tab, "/runs")[1][0]["counts"]["done"] == 6
    with Journal(run / "journal") as journal:
        lines = (run / "journal" / "000001.jsonl").read_bytes().count(b"\n")
        journal.append(begun(lines, 7))
        journal.append(Planned(Trial(6, {"learning_rate": 0.5}), 1, "2.0.0", at=9.0))
        outcome = Outcome(6, "finished", value=0.5, objective="accuracy")
        journal.append(Finished(1, outcome, at=10.0))
    summary = json.loads((run / "result.json").read_bytes())
    (run / "result.json").write_text(json.dumps(summary | {"trials": 7}))
    assert get(tab, "/run", run=run.name)[1]["counts"]["done"] == 7
    [facts] = get(tab, "/runs")[1]
    assert (facts["counts"]["done"], facts["best"]["trial"]) == (7, 6)


def test_a_summary_that_is_a_link_to_itself_is_named_and_hides_no_other(make_tab, tmp_path):
    run, other = make_run(tmp_path), make_run(tmp_path)
    (run / "result.json").unlink()
    (run / "result.json").symlink_to("result.json")
    facts = {each["name"]: each for each in get(make_tab(tmp_path), "/runs")[1]}
    assert facts.keys() == {run.name, other.name}
    assert facts[other.name]["state"] == "finished"


def test_a_run_whose_driver_was_killed_has_no_trials_that_run_and_no_time_left(make_tab, tmp_path):
    run = make_run(tmp_path, running=(4, 5), ended=False)
    mark_as_owned(run)
    facts = get(make_tab(run), "/run", run=run.name)[1]
    assert (facts["state"], facts["left"]) == ("driver gone", None)
    assert facts["counts"]["running"] == 0


def test_of_the_calls_of_an_executor_none_is_the_best(make_tab, tmp_path):
    run = make_run(tmp_path, search=replace(make_search(0, points=[{}, {}]), call="executor"))
    tab = make_tab(run)
    assert get(tab, "/runs")[1][0]["best"] is None
    assert get(tab, "/run", run=run.name)[1]["best"] is None


def test_trials_that_were_cancelled_at_the_target_do_not_count(make_tab, tmp_path):
    run = make_run(tmp_path, running=(4, 5))
    summary = json.loads((run / "result.json").read_bytes())
    (run / "result.json").write_text(
        json.dumps(summary | {"problem": None, "target": 0.001, "trials": 6})
    )
    [facts] = get(make_tab(run), "/runs")[1]
    assert facts["counts"]["done"] == 4


def test_cancelled_trials_do_not_count(make_tab, tmp_path):
    run = make_run(tmp_path, running=(4, 5))
    [facts] = get(make_tab(run), "/runs")[1]
    assert facts["state"] == "ended early"
    assert (facts["counts"]["done"], facts["counts"]["cancelled"]) == (4, 2)


def test_a_trial_has_its_error_output_attempts_and_files(make_tab, tmp_path):
    run = make_run(tmp_path, lost=(3,))
    (run / "trials" / "000001" / "model.txt").write_text("weights")
    for name in ("export/trial.json", "workers/1/stdout.log", "workers/notes/stdout.log"):
        file = run / "trials" / "000001" / name
        file.parent.mkdir(parents=True)
        file.write_text("{}")
    (run / "trials" / "000001" / "secret").symlink_to("/etc/passwd")
    page = get(make_tab(run), "/trial", run=run.name, trial=1)[1]
    assert page["error"] == {
        "kind": "user error",
        "message": "ValueError: too large",
        "traceback": TRACEBACK,
    }
    assert [(one["name"], one["text"]) for one in page["output"]] == [
        ("stdout", "trial 1 says hello\n"),
        ("stderr", "trial 1 warns\n"),
    ]
    assert page["files"] == [
        {"name": "model.txt", "size": 7},
        {"name": "export/trial.json", "size": 2},
        {"name": "workers/notes/stdout.log", "size": 2},
    ]
    files = experiment.load(run).trials[1].files
    assert files == sorted(f"{run}/trials/000001/{file['name']}" for file in page["files"])
    page = get(make_tab(run), "/trial", run=run.name, trial=3)[1]
    assert [one["ending"] for one in page["attempts"]] == ["lost", "finished"]
    assert page["folder"].endswith("/trials/000003-2")


def test_a_trial_that_waits_for_its_next_attempt_says_so_on_its_page_and_in_the_table(
    make_tab, tmp_path
):
    run = make_run(tmp_path, running=(3,), ended=False)
    tab = make_tab(run)
    assert get(tab, "/trial", run=run.name, trial=3)[1]["status"] == "running"
    [segment] = RunPaths(run).journal.glob("*.jsonl")
    with Journal(RunPaths(run).journal) as journal:  # of a resumed search, which has no slot yet
        journal.append(begun(len(segment.read_bytes().splitlines()), trials=6))
    assert get(tab, "/trial", run=run.name, trial=3)[1]["status"] == "waiting"
    columns = get(tab, "/run", run=run.name)[1]["columns"]
    assert columns["status"][columns["id"].index(3)] == "waiting"


def test_output_of_all_workers_is_shown_if_the_outcome_was_found_in_the_folder(make_tab, tmp_path):
    run = make_run(tmp_path, ended=False)
    trial = Trial(6, {"learning_rate": 0.5})
    log = run / "trials" / "000006" / "workers" / "1" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("worker 1\n")
    with Journal(run / "journal") as journal:
        lines = (run / "journal" / "000001.jsonl").read_bytes().count(b"\n")
        journal.append(begun(lines, 7))
        journal.append(Planned(trial, 1, "1.0.0", ("1.0.0", "2.0.0"), at=8.0))
    with Journal(run / "journal") as journal:
        journal.append(begun(lines + 2, 7))
        journal.append(Planned(trial, 1, "", at=9.0))  # by the driver that resumes the run
    page = get(make_tab(run), "/trial", run=run.name, trial=6)[1]
    assert page["output"] == [{"name": "stdout of worker 1", "text": "worker 1\n"}]


def test_a_trial_is_shown_though_the_store_of_its_output_is_away(tmp_path):
    class Away(LocalFiles):
        def listdir(self, location):
            raise ConnectionError("no WebHDFS at <b>host</b>")

    run = make_run(tmp_path)
    tab = Loader("hdfs://host/runs", Away()).load(base_plugin.TBContext(logdir=str(tmp_path)))
    page = get(tab, "/trial", run=run.name, trial=1)[1]
    assert page["missing"] == "no WebHDFS at <b>host</b>"
    assert page["error"]["traceback"] == TRACEBACK
    assert page["output"] == page["files"] == []


def test_what_a_trial_has_reported_is_shown_beside_large_files_of_its_own(
    make_tab, tmp_path, monkeypatch
):
    run = make_run(tmp_path)
    folder = run / "trials" / "000000"
    with EventFile(folder) as events:
        events.scalars({"loss": 0.5}, 1)
    shown = get(make_tab(run), "/trial", run=run.name, trial=0)[1]["curves"]
    assert [curve["tag"] for curve in shown] == ["loss"]
    size = (folder / "events.out.tfevents.trial").stat().st_size
    monkeypatch.setattr(trial_page, "_MOST_EVENTS", size)
    (folder / "events.out.tfevents.0").write_bytes(b"?" * size)
    assert get(make_tab(run), "/trial", run=run.name, trial=0)[1]["curves"] == shown


def test_progress_bars_in_output_have_a_line_per_step(make_tab, tmp_path):
    run = make_run(tmp_path)
    (run / "trials" / "000000" / "stderr.log").write_bytes(b"\r 50%\r100%\r\nend\n")
    page = get(make_tab(run), "/trial", run=run.name, trial=0)[1]
    assert page["output"][-1] == {"name": "stderr", "text": "\n 50%\n100%\nend\n"}


def test_output_that_is_a_link_is_not_followed(make_tab, tmp_path):
    run = make_run(tmp_path)
    log = run / "trials" / "000000" / "stdout.log"
    log.unlink()
    log.symlink_to("/etc/passwd")
    page = get(make_tab(run), "/trial", run=run.name, trial=0)[1]
    assert [one["name"] for one in page["output"]] == ["stderr"]


def test_a_folder_of_a_trial_that_is_a_link_is_not_followed(make_tab, tmp_path):
    run = make_run(tmp_path)
    folder = run / "trials" / "000000"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    page = get(make_tab(run), "/trial", run=run.name, trial=0)[1]
    assert (page["curves"], page["output"], page["files"]) == ([], [], [])


def test_several_objectives_have_a_front_and_an_importance_each(make_tab, tmp_path):
    def outcome(trial):
        values = {"accuracy": trial.id / 10, "loss": trial.id * 2.0}
        return Outcome(trial.id, "finished", metrics=values, values=values)

    run = make_run(tmp_path, direction={"accuracy": "max", "loss": "min"}, outcome_of=outcome)
    tab = make_tab(run)
    assert len(get(tab, "/runs")[1][0]["front"]) == 6
    answer = get(tab, "/run", run=run.name)[1]
    assert answer["best"] is None
    assert sorted(answer["front"]) == list(range(6))
    assert set(get(tab, "/importance", run=run.name)[1]) == {"accuracy", "loss"}


def test_the_objectives_are_among_the_metrics_however_many_there_are(make_tab, tmp_path):
    def outcome(trial):
        values = {"accuracy": trial.id / 10, "loss": trial.id * 2.0}
        others = {f"metric{number}": 0.0 for number in range(40)}
        return Outcome(trial.id, "finished", metrics=others | values, values=values)

    run = make_run(tmp_path, direction={"accuracy": "max", "loss": "min"}, outcome_of=outcome)
    metrics = get(make_tab(run), "/run", run=run.name)[1]["metrics"]
    assert list(metrics)[:3] == ["accuracy", "loss", "metric0"]
    assert metrics["loss"] == [trial * 2.0 for trial in range(6)]
    assert len(metrics) == 30


def test_the_trials_of_a_model_have_their_acquisition(make_tab, tmp_path):
    space = Space({"learning_rate": Float(0.0, 1.0)})
    searcher = started(BayesianOptimization, space, 1, samples=DESIGN + 3)
    algorithm = {"type": "bayesian optimization"}
    search = make_spec("bayesian_search", searcher, space, algorithm=algorithm)
    run = make_run(tmp_path, search=search, failed=())
    answer = get(make_tab(run), "/run", run=run.name)[1]
    assert [trial for trial, _ in answer["acquisitions"]] == [DESIGN, DESIGN + 1, DESIGN + 2]


def test_a_run_of_an_older_version_has_no_acquisition(make_tab):
    answer = get(make_tab(RUN_OF_FORMAT_1), "/run", run=RUN_OF_FORMAT_1.name)[1]
    assert len(answer["columns"]["id"]) > 0
    assert answer["acquisitions"] == []


def test_the_importance_is_that_of_the_result(make_tab, tmp_path):
    run = make_run(tmp_path, generations=True, trials=40)
    shares = get(make_tab(run), "/importance", run=run.name)[1][""]
    table = experiment.load(run).importance()
    assert dict(shares) == dict(zip(table["hyperparameter"], table["importance"], strict=True))


def test_what_is_not_there_is_refused_in_a_sentence(make_tab, tmp_path):
    run = make_run(tmp_path)
    tab = make_tab(tmp_path)
    assert get(tab, "/run", run="../other") == (404, {"error": "there is no such run"})
    assert get(tab, "/trial", run=run.name, trial=99) == (404, {"error": "no such trial"})
    assert get(tab, "/trial", run=run.name, trial="x") == (404, {"error": "no such trial"})


def test_a_damaged_run_is_named_and_hides_no_other(make_tab, tmp_path):
    damaged, whole = make_run(tmp_path, name="a", ended=False), make_run(tmp_path, name="b")
    (damaged / "journal" / "000001.jsonl").write_bytes(b"nonsense\n")
    tab = make_tab(tmp_path)
    first, second = get(tab, "/runs")[1]
    assert "the checksum does not match" in first["error"]
    assert second["name"] == whole.name
    code, answer = get(tab, "/run", run=damaged.name)
    assert code == 500
    assert "repair" in answer["error"]


@pytest.mark.parametrize("change", [{"ended": "yesterday"}, {"best": {}}, {"front": [{}]}])
def test_a_summary_that_cannot_be_used_is_named_and_hides_no_other(make_tab, tmp_path, change):
    damaged, whole = make_run(tmp_path, name="a"), make_run(tmp_path, name="b")
    summary = json.loads((damaged / "result.json").read_text())
    (damaged / "result.json").write_text(json.dumps(summary | change))
    first, second = get(make_tab(tmp_path), "/runs")[1]
    assert "whose result.json cannot be used" in first["error"]
    assert second["name"] == whole.name


def test_times_that_no_float_can_hold_hide_no_run(make_tab, tmp_path):
    def outcome(trial):
        return Outcome(trial.id, "finished", 1.0, "accuracy", {"accuracy": 1.0}, seconds=1e308)

    odd, other = (
        make_run(tmp_path, outcome_of=outcome, running=(5,), ended=False),
        make_run(tmp_path),
    )
    answers = {facts["name"]: facts for facts in get(make_tab(tmp_path), "/runs")[1]}
    assert answers[odd.name]["left"] is None
    assert answers[other.name]["counts"]["done"] == 6


def test_a_run_whose_name_is_no_unicode_is_shown(make_tab, tmp_path):
    odd = make_run(tmp_path)
    odd.rename(tmp_path / "run-\udcff")
    other = make_run(tmp_path)
    tab = make_tab(tmp_path)
    answers = {facts["name"]: facts for facts in get(tab, "/runs")[1]}
    assert set(answers) == {"run-\\udcff", other.name}
    assert answers["run-\\udcff"]["folder"] == f"{tmp_path}/run-\\udcff"
    assert get(tab, "/run", run="run-\\udcff")[1]["counts"]["done"] == 6
    assert get(tab, "/trial", run="run-\\udcff", trial=0)[1]["status"] == "finished"
    (tmp_path / "run-\udcff" / "journal" / "000001.jsonl").write_bytes(b"nonsense\n")
    assert "the checksum does not match" in get(tab, "/run", run="run-\\udcff")[1]["error"]
    (tmp_path / "run-\udcff" / "result.json").unlink()
    answers = {facts["name"]: facts for facts in get(make_tab(tmp_path), "/runs")[1]}
    assert "the checksum does not match" in answers["run-\\udcff"]["error"]


def test_a_run_that_was_removed_is_gone(make_tab, tmp_path):
    run = make_run(tmp_path)
    tab = make_tab(tmp_path)
    assert tab.is_active()
    shutil.rmtree(run)
    assert get(tab, "/run", run=run.name)[0] == 404
    assert not tab.is_active()


def test_values_are_sent_in_a_form_that_json_has(make_tab, tmp_path):
    points = [{"size": (32, 64), "norm": float("inf"), "many": 2**60, "flag": True, "none": None}]
    run = make_run(tmp_path, points=points, failed=())
    answer = get(make_tab(run), "/run", run=run.name)[1]
    assert answer["params"] == {
        "size": ["(32, 64)"],
        "norm": ["inf"],
        "many": [str(2**60)],
        "flag": [True],
        "none": ["None"],
    }
    assert eval(answer["best"]["python"]) == points[0]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (range(4), {"values": [0, 1, 2, 3]}),
        (range(16, 4096), {"low": 16, "high": 4095, "log": False, "integer": True}),
        (range(0, -4096, -2), {"low": -4094, "high": 0, "log": False, "integer": True}),
        (range(2**60, 2**60 + 4096), {}),
        ([str(number) for number in range(4096)], {}),
    ],
)
def test_a_long_list_of_choices_is_not_cut(values, shown):
    assert shown_space(Space({"x": Choice(values)})) == {"x": {"conditional": False, **shown}}


def test_the_module_is_the_built_file(make_tab, tmp_path):
    tab = make_tab(tmp_path)
    answer = Client(tab.get_plugin_apps()["/index.js"]).get("/index.js")
    assert answer.headers["Content-Type"].startswith("text/javascript")
    assert b"render" in answer.data
    assert os.path.basename(tab.frontend_metadata().es_module_path) == "index.js"
