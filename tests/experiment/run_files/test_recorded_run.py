"""A run of format 1, recorded once by `recording.py`, can be loaded, shown and resumed."""

import re
import shutil

import pytest

import experiment
from experiment.cli.commands import main
from experiment.run_files.journal import read_journal
from tests.experiment.run_files.recording import RECORDED, search


@pytest.fixture
def run(tmp_path):
    """A copy of the recorded run."""
    return shutil.copytree(RECORDED, tmp_path / "recorded")


def ends(result):
    return [(trial.id, trial.params, trial.status, trial.value) for trial in result.trials]


def test_it_has_no_name_of_a_host_or_folder():
    for path in RECORDED.rglob("*"):
        if path.is_file():
            assert not re.search(rb"(?<![\w.])/\w+/", path.read_bytes()), path
    joined = [r for r in read_journal(RECORDED / "journal") if r["event"] == "joined"]
    assert {record["host"] for record in joined} == {"host"}


def test_it_has_records_of_every_kind_that_a_search_without_faults_writes():
    events = {record["event"] for record in read_journal(RECORDED / "journal")}
    wanted = {"begun", "joined", "waiting", "planned", "reported", "finished", "selected", "left"}
    assert events == wanted


def test_it_is_loaded(run):
    result = experiment.load(run)
    assert (result.objective, result.direction, result.total) == ("loss", "min", 8)
    assert [trial.id for trial in result.trials] == list(range(8))
    assert {trial.status for trial in result.trials} == {"finished", "failed"}
    for trial in result.trials:
        wanted = "ValueError: too many units" if trial.params["units"] > 6 else None
        assert (trial.error and trial.error.message) == wanted or trial.status == "stopped"
    assert result.best.value == pytest.approx(result.best.params["x"] ** 2)


def test_it_is_shown(run, capsys):
    assert main(["show", "-v", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "8 trials, 3 failed" in shown
    assert "ValueError: too many units" in shown
    assert main(["show", str(run), "0"]) == 0
    assert main(["logs", str(run), "0"]) == 0
    assert "x is " in capsys.readouterr().out
    assert main(["export", str(run), "--json"]) == 0


# Another version of Python compiles the train function differently.
@pytest.mark.filterwarnings("ignore:the train function 'train' has changed")
def test_it_is_resumed(spark, run):
    before = ends(experiment.load(run))
    result = search(spark, 2, resume=run)
    assert ends(result)[:8] == before
    assert len(result) == 12
    assert ends(experiment.load(run)) == ends(result)
