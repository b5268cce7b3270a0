"""TensorBoard's own responses for a run folder."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from html import unescape
from pathlib import Path

import pytest

import experiment
from experiment.results.text import hyperparameters
from experiment.run_files.loading import load
from search.algorithms import Evolution
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Outcome
from tests.experiment.display.test_description import Page
from tests.experiment.runs import TRACEBACK, make_run, make_spec
from tests.search.fakes import started
from tests.spark_jobs.trial.events.reading import scalars


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
        with urllib.request.urlopen(request, timeout=240) as answer:
            return json.loads(answer.read())

    def wait_for(self, path: str, body, ready):
        """Request until `ready(answer)`; the limit only keeps a failing test from hanging."""
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

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=240)

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
        server.stop()


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
    run = result.logdir[-8:]
    assert sorted(rows) == [f"{trial.id:06d} {run}" for trial in result.trials]
    for trial in result.trials:
        row = rows[f"{trial.id:06d} {run}"]
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
    assert [step for step, _ in curves["generation/acceptance"]] == [1, 2]
    assert [done for _, done in curves["search/done"]] == list(range(1, 13))
    assert all(0 <= busy <= 2 for _, busy in curves["search/slots_busy"])
    best = [value for _, value in curves["search/best_so_far"]]
    assert len(best) == 12
    assert best == sorted(best)


@pytest.mark.slow
@pytest.mark.contract
def test_a_search_is_shown_while_it_runs(spark, tmp_path, serve):
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

        def statuses(answer):
            return [g["sessions"][0].get("status", "") for g in answer.get("sessionGroups", [])]

        answer = server.wait_for(
            "/data/plugin/hparams/session_groups",
            body,
            lambda a: len(statuses(a)) == 3 and statuses(a).count("STATUS_SUCCESS") >= 2,
        )
        assert statuses(answer).count("STATUS_SUCCESS") == 2
        assert search.is_alive()
    finally:
        release.touch()
        search.join()


@pytest.mark.slow
def test_trials_without_a_hyperparameter_have_their_rows(serve, tmp_path):
    space = Space(
        {
            "optimizer": Choice(["adam", "sgd"]),
            "momentum": Float(0.0, 0.9, when={"optimizer": "sgd"}),
            "nesterov": Choice([True, False], when={"optimizer": "sgd"}),
        },
        constraint=lambda p: p.get("momentum", 0.0) < 0.5,
    )
    searcher = started(Evolution, space, 1, generational=True, popsize=4, generations=1)
    search = make_spec("evolutionary_search", searcher, space)
    root = make_run(tmp_path / "runs", search=search, failed=())
    trials = load(root).trials
    assert {"momentum" in trial.params for trial in trials} == {True, False}
    server = serve(str(root))
    columns = [{"hparam": name, "includeInResult": True} for name in space]
    everything = {
        "allowedStatuses": ["STATUS_SUCCESS"],
        "colParams": [*columns, {"hparam": "momentum", "order": "ORDER_ASC"}],
        "startIndex": 0,
        "sliceSize": 100,
    }
    answer = server.wait_for(
        "/data/plugin/hparams/session_groups",
        everything,
        lambda a: len(a.get("sessionGroups", [])) == len(trials),
    )
    rows = {group["name"]: group["hparams"] for group in answer["sessionGroups"]}
    for trial in trials:
        shown = {
            n: v for n, v in rows[f"{trial.id:06d} {root.name[-8:]}"].items() if n != "generation"
        }
        assert shown == trial.params
    config = server.get("/data/plugin/hparams/experiment", {})
    assert {column["name"] for column in config["hparamInfos"]} == {*space, "generation"}


@pytest.mark.slow
def test_the_table_of_several_runs_has_a_row_for_each_trial_of_each_run(serve, tmp_path):
    def run_of(number):
        def outcome_of(trial):
            score = number + trial.id / 10
            return Outcome(
                trial.id, "finished", score, "accuracy", {"accuracy": score}, seconds=2.5
            )

        points = [{"rate": float(number), "units": units} for units in (8, 16)]
        return make_run(tmp_path / "runs", points=points, outcome_of=outcome_of)

    runs = [run_of(number) for number in range(4)]
    server = serve(str(tmp_path / "runs"))
    everything = {"allowedStatuses": ["STATUS_SUCCESS"], "colParams": [], "sliceSize": 100}
    answer = server.wait_for(
        "/data/plugin/hparams/session_groups",
        everything,
        lambda a: sum(len(group["sessions"]) for group in a.get("sessionGroups", [])) == 8,
    )
    shown = {
        group["name"]: (
            group["hparams"],
            [round(metric["value"], 3) for metric in group["metricValues"]],
        )
        for group in answer["sessionGroups"]
    }
    assert shown == {
        f"{trial:06d} {run.name[-8:]}": ({"rate": number, "units": units}, [number + trial / 10])
        for number, run in enumerate(runs)
        for trial, units in enumerate((8, 16))
    }


NAME = "|<script>alert(1)</script> `x` *b*\\"


@pytest.fixture(scope="module")
def evolution(tmp_path_factory):
    """A differential evolution with odd names: its run folder, and a server for it."""
    space = Space(
        {
            "rate": Float(1e-4, 0.1, log=True),
            "a/b ü": Choice(["<b>", "a|b"]),
            "fixed": Integer(3, 3),
        }
    )
    searcher = started(Evolution, space, 1, generational=True, popsize=4, generations=2)
    search = make_spec("evolutionary_search", searcher, space)
    folder = tmp_path_factory.mktemp("evolution")
    root = make_run(folder, search=search, failed=(2, 9), name=NAME, description=NAME)
    server = Server(str(root), folder / "tensorboard.log")
    yield root, server
    server.stop()


@pytest.mark.slow
@pytest.mark.contract
def test_each_generation_of_each_hyperparameter_is_a_histogram(evolution):
    _, server = evolution
    tags = "/data/plugin/histograms/tags"
    answer = server.wait_for(tags, None, lambda a: len(a.get("search", [])) == 3)
    served = {tag: unescape(about["description"]) for tag, about in answer["search"].items()}
    assert served == {
        "population/rate": "<p>log10</p>",
        "population/a/b ü": "<p>0: <b>, 1: a|b</p>",
        "population/fixed": "",
    }
    points = {}
    for tag in served:
        query = urllib.parse.urlencode({"run": "search", "tag": tag})
        points[tag] = server.get(f"/data/plugin/histograms/histograms?{query}")
        assert [step for _, step, _ in points[tag]] == [0, 1, 2]
        assert [sum(count for _, _, count in rows) for _, _, rows in points[tag]] == [4, 4, 4]
    (_, _, rows) = points["population/fixed"][0]
    assert [left for left, _, _ in rows] == [3.0] * 12


def test_the_charts_of_the_search_have_their_curves(evolution):
    _, server = evolution
    layout = server.wait_for("/data/plugin/custom_scalars/layout", None, lambda a: "category" in a)
    assert [category["title"] for category in layout["category"]] == [
        "Population, by generation",
        "Search, by trials done",
    ]
    charts = [chart for category in layout["category"] for chart in category["chart"]]
    assert len(charts) == 7
    for chart in charts:
        for pattern in chart.get("multiline", {}).get("tag", []):
            query = urllib.parse.urlencode({"run": "search", "tag": pattern})
            answer = server.get(f"/data/plugin/custom_scalars/scalars?{query}")
            assert answer["regex_valid"]
            assert all(answer["tag_to_events"].values())
            assert len(answer["tag_to_events"]) == pattern.count("|") + 1
        for series in chart.get("margin", {}).get("series", []):
            for name in ("value", "lower", "upper"):
                query = urllib.parse.urlencode({"run": "search", "tag": series[name]})
                points = server.get(f"/data/plugin/scalars/scalars?{query}")
                assert [step for _, step, _ in points] == [0, 1, 2]


def test_the_text_page_has_the_description_and_the_failures(evolution):
    root, server = evolution
    tags = server.wait_for("/data/plugin/text/tags", None, lambda a: len(a.get("search", [])) == 3)
    assert sorted(tags["search"]) == ["about", "failed/000002", "failed/000009"]

    def page(tag):
        query = urllib.parse.urlencode({"run": "search", "tag": tag})
        (text,) = server.get(f"/data/plugin/text/text?{query}")
        return Page(text["text"], lambda html: html)

    shown = page("about")
    assert shown.texts["h1"] == [NAME]
    assert shown.texts["p"] == [NAME]
    assert shown.table("hyperparameter") == [
        ["rate", "0.0001 to 0.1", "float, log"],
        ["a/b ü", "<b>, a|b", "choice"],
        ["fixed", "3 to 3", "integer, linear"],
    ]
    assert "script" not in shown.tags
    params = hyperparameters(load(root).failed[0].params)
    failure = page("failed/000002")
    assert failure.texts["p"] == [f"Trial 2: {params}"]
    assert failure.texts["code"] == [TRACEBACK]


def test_the_table_has_the_hyperparameters_that_differ(evolution):
    _, server = evolution
    path = "/data/plugin/hparams/experiment"
    config = server.wait_for(path, {}, lambda a: len(a.get("hparamInfos", [])) == 4)
    differs = {info["name"]: info.get("differs", False) for info in config["hparamInfos"]}
    assert differs == {"rate": True, "a/b ü": True, "fixed": False, "generation": True}
    assert [info["displayName"] for info in config["metricInfos"]] == ["accuracy ↑", "loss"]


@pytest.mark.slow
@pytest.mark.contract
def test_the_driver_writes_its_events_without_tensorflow(logdir):
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
