"""What TensorBoard itself serves of a run's folder."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import experiment
from experiment.board import Board
from experiment.result import TrialResult
from search.direction import Direction
from search.grid import GridSearch
from search.space import Space
from search.trial import Outcome, Trial
from spark_jobs.paths import RunPaths
from spark_jobs.storage import make_folder
from tests.spark_jobs_tests.test_events import scalars


class Server:
    """A TensorBoard on a free port of the loopback address."""

    def __init__(self, logdir: str, log: Path) -> None:
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", logdir]
        command += ["--host", "127.0.0.1", "--port", "0", "--reload_interval", "1"]
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file)

    def get(self, path: str, body: dict | None = None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address() + path, data)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def wait_for(self, path: str, body, ready):
        """Ask until `ready(answer)`; the limit only keeps a failing test from hanging."""
        end = time.monotonic() + 90
        while True:
            try:
                answer = self.get(path, body)
                if ready(answer):
                    return answer
            except urllib.error.HTTPError:
                answer = None  # no data of the plugin yet
            assert time.monotonic() < end, answer
            time.sleep(0.2)

    def _address(self) -> str:
        while True:
            text = self._log.read_text()
            if " at http://" in text:
                return text.split(" at ")[1].split()[0].rstrip("/")
            assert self.process.poll() is None, text
            time.sleep(0.1)


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(logdir):
        servers.append(Server(logdir, tmp_path / f"tensorboard-{len(servers)}.log"))
        return servers[-1]

    yield start
    for server in servers:
        server.process.terminate()
        server.process.wait(timeout=30)


def test_the_table_has_every_trial_and_the_real_objective(spark, logdir, serve):
    def train(rate, units, kind):
        if units == 3 and kind == "b":
            raise ValueError("user bug")
        for step in range(3):
            experiment.report(step=step, loss=1.0 / (step + 1), accuracy=0.0)
        return {"accuracy": rate * units, "loss": 1.0}

    result = experiment.launch(
        spark,
        train,
        {"rate": [0.5, 1.0], "units": [2, 3], "kind": ["a", "b"]},
        logdir=logdir,
        optimization_key="accuracy",
        preload=(),
    )
    server = serve(result.logdir)
    table = "/data/plugin/hparams/session_groups"
    everything = {
        "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
        "colParams": [],
        "startIndex": 0,
        "sliceSize": 100,
    }
    answer = server.wait_for(table, everything, lambda a: len(a.get("sessionGroups", [])) == 8)
    config = server.get("/data/plugin/hparams/experiment", {})
    assert sorted(column["name"] for column in config["hparamInfos"]) == ["kind", "rate", "units"]
    assert [metric["displayName"] for metric in config["metricInfos"]] == ["accuracy ↑", "loss"]

    rows = {group["name"]: group for group in answer["sessionGroups"]}
    assert sorted(rows) == [f"{trial.id:06d}" for trial in result.trials]
    for trial in result.trials:
        row = rows[f"{trial.id:06d}"]
        assert row["hparams"] == trial.params
        (session,) = row["sessions"]
        shown = {m["name"]["tag"]: m["value"] for m in row.get("metricValues", [])}
        if trial.status == "failed":
            assert session["status"] == "STATUS_FAILURE"
        else:
            assert session["status"] == "STATUS_SUCCESS"
            assert shown["objective/accuracy"] == pytest.approx(trial.value)

    runs = server.get("/data/plugin/scalars/tags")
    finished = [f"trials/{t.id:06d}" for t in result.trials if t.status == "finished"]
    for run in finished:
        assert {"loss", "accuracy", "objective/accuracy"} <= set(runs[run])
        points = server.get(f"/data/plugin/scalars/scalars?run={run}&tag=loss")
        assert [step for _, step, _ in points] == [0, 1, 2]
    assert "search/best_so_far" in runs["search"]
    assert set(runs) == {"search", *finished}  # one run per trial


def test_generations_are_curves_of_the_search(spark, logdir):
    def train(x):
        return -x * x

    result = experiment.evolutionary_search(
        spark,
        train,
        {"x": [-1.0, 1.0]},
        popsize=4,
        generations=2,
        generational=True,
        logdir=logdir,
        isolation="none",
    )
    curves = scalars(Path(result.logdir, "search"))
    for name in ("best", "mean", "std", "diversity"):
        assert [step for step, _ in curves[f"generation/{name}"]] == [0, 1, 2]
    best = [value for _, value in curves["search/best_so_far"]]
    assert len(best) == 12
    assert best == sorted(best)


def test_a_search_is_seen_while_it_runs(spark, tmp_path, serve):
    release = tmp_path / "release"

    def train(x):
        import time

        while x == 2 and not release.exists():
            time.sleep(0.05)
        return x

    import threading

    search = threading.Thread(
        target=experiment.launch,
        args=(spark, train, {"x": [0, 1, 2]}),
        kwargs={"logdir": tmp_path / "runs", "isolation": "none"},
    )
    search.start()
    try:
        server = serve(str(tmp_path / "runs"))
        body = {
            "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_RUNNING"],
            "colParams": [],
            "startIndex": 0,
            "sliceSize": 100,
        }
        answer = server.wait_for(
            "/data/plugin/hparams/session_groups",
            body,
            lambda a: len(a.get("sessionGroups", [])) == 3,
        )
        statuses = sorted(g["sessions"][0].get("status", "") for g in answer["sessionGroups"])
        assert statuses.count("STATUS_SUCCESS") == 2
        assert search.is_alive()
    finally:
        release.touch()
        search.join()


def board(tmp_path, grid):
    paths = RunPaths(tmp_path)
    make_folder(paths.search)
    space = Space.of_grid(grid)
    return Board(paths, GridSearch(space), Direction.MIN, dict(space), ("mixed",))


def result_of(number, value):
    outcome = Outcome(number, "finished", value, "loss", {"loss": value})
    return TrialResult.of(Trial(number, {}), outcome, "")


def test_columns_of_any_kind_of_value_can_be_shown(tmp_path):
    grid = {
        "numbers": [1, 2.5],
        "texts": ["a", "b"],
        "flags": [True, False],
        "tuples": [(1, 2), (3,)],
        "mixed": [None, 0.5, "x"],
        "many": range(10**9),
    }
    shown = board(tmp_path, grid)
    for number, value in enumerate([3.0, 5.0, 1.0]):
        shown.ended(result_of(number, value), "loss")
    shown.close(None)
    assert [v for _, v in scalars(tmp_path / "search")["search/best_so_far"]] == [3.0, 3.0, 1.0]


def test_a_search_without_a_finished_trial_has_a_table_too(tmp_path):
    shown = board(tmp_path, {"x": [1]})
    failed = Outcome.failed(0, "user error", "no")
    shown.ended(TrialResult.of(Trial(0, {"x": 1}), failed, ""), None)
    shown.close("accuracy")
    assert list((tmp_path / "search").glob("*tfevents*"))


def test_the_driver_writes_all_of_it_without_tensorflow(logdir):
    program = f"""
import sys, experiment
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
experiment.launch(spark, lambda x: x, {{"x": [1, 2]}}, logdir={logdir!r}, isolation="none")
spark.stop()
print("tensorflow" in sys.modules)
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert output.stdout.split() == ["False"], output.stderr[-2000:]
