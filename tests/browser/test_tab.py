"""What a person sees in the Experiment tab, in a real browser. Run by `make test-browser`."""

from __future__ import annotations

import itertools
import math
import os
import re
import shutil
import threading
import time
from urllib.parse import quote

import msgspec
import optuna
import pytest

import experiment
from experiment.run_files.journal import Journal, encode_line
from experiment.run_files.journal_records import Finished, Joined, Planned, Selected, Waiting
from search.searcher import Selection
from search.trial import Outcome, Trial
from tests.browser.pages import browser, wait_until
from tests.experiment.runs import begun, make_run, mark_as_owned

pytestmark = pytest.mark.browser

BOUNDS = {
    "rate": [0.1, 0.0001],
    "units": [2, 9],
    "kind": ["a", "b"],
    "decay": experiment.Float(0.1, 0.9, when={"kind": "b"}),
}
SETTINGS = {"preload": (), "isolation": "none", "verbose": 0}
KINDS = [
    *("random", "hyperband", "training", "each", "regularized", "reinforce", "optuna"),
    *("evolution", "steady", "bayes", "grid", "front"),
]
ASKED_RUN, ASKED_RUNS = re.compile(r"/experiment/run\?"), re.compile(r"/experiment/runs\?")
POPULATIONS = ("evolution", "steady", "front", "training", "regularized")


def train(rate, units, kind, decay=0.0):
    if units == 3:
        raise ValueError("three units are <b>too few</b>")
    print("training with <i>care</i>")
    for step in range(3):
        experiment.report(step=step, loss=1.0 / (step + 1))
    return {"accuracy": rate * units + decay, "latency": float(units)}


@pytest.fixture(scope="module")
def chromium():
    with browser() as running:
        yield running


def train_further(rate, units, kind, group="all", decay=0.0):
    """Train in parts, each from the checkpoint of the one before."""
    experiment.checkpoint_dir()
    for step in range(3):
        experiment.report(step=step, accuracy=rate * units + decay)
    return {"accuracy": rate * units + decay}


def train_on_both_slots(folder):
    """Return `train`, which waits until each of the two slots has a trial."""

    def train_together(**params):
        (folder / f"slot-{os.getpid()}").touch()
        while len(list(folder.glob("slot-*"))) < 2:
            time.sleep(0.01)
        return train(**params)

    return train_together


def train_until_stopped(accuracy):
    """Report an accuracy above 0.5 until the search stops the trial."""
    experiment.report(step=0, accuracy=accuracy)
    for step in itertools.count(1) if accuracy > 0.5 else ():
        experiment.report(step=step, accuracy=accuracy)
        time.sleep(0.05)
    return {"accuracy": accuracy}


@pytest.fixture(scope="module")
def results(sparks, tmp_path_factory):
    """A run of each kind of search, by name, and one that has lost an executor."""
    spark = sparks.get("local[2]")
    one = {"optimization_key": "accuracy", "logdir": tmp_path_factory.mktemp("runs"), **SETTINGS}
    several = {**one, "optimization_key": None}
    evolution = {"popsize": 6, "generations": 3, "seed": 1, **one}
    grid = {"rate": [0.01, 0.1], "units": [2, 3], "kind": ["a"]}
    groups = {"eu": BOUNDS, "us": BOUNDS}
    together = train_on_both_slots(tmp_path_factory.mktemp("slots"))

    def by(searcher, name):
        return experiment.run(
            spark, train, BOUNDS, searcher=searcher, samples=8, seed=1, name=name, **one
        )

    return {
        "random": experiment.random_search(
            spark, train, BOUNDS, samples=8, seed=1, name="random", **one
        ),
        "hyperband": experiment.hyperband_search(
            spark, train_further, BOUNDS, max_epochs=3, seed=1, name="hyperband", **one
        ),
        "training": experiment.population_based_training(
            spark, train_further, BOUNDS, popsize=4, generations=2, seed=1, name="training", **one
        ),
        "each": experiment.search_each(
            spark, train_further, groups, samples=4, seed=1, name="each", **one
        ).overall,
        "regularized": by(experiment.RegularizedEvolution(popsize=4, tournament=2), "regularized"),
        "reinforce": by(experiment.Reinforce(), "reinforce"),
        "optuna": by(experiment.OptunaSearcher(optuna.samplers.TPESampler()), "optuna"),
        "lost": experiment.load(make_run(one["logdir"], lost=(3,), name="lost")),
        "evolution": experiment.evolutionary_search(
            spark, together, BOUNDS, generational=True, name="evolution", **evolution
        ),
        "steady": experiment.evolutionary_search(spark, train, BOUNDS, name="steady", **evolution),
        "bayes": experiment.bayesian_search(
            spark, train, BOUNDS, samples=12, seed=1, name="bayes", **one
        ),
        "grid": experiment.launch(spark, train, grid, name="grid", **one),
        "stopped": experiment.launch(
            spark,
            train_until_stopped,
            {"accuracy": [0.2, 0.9]},
            stopping=experiment.Threshold(upper=0.5),
            name="stopped",
            **one,
        ),
        "diverged": experiment.launch(
            spark, train, {**grid, "rate": [0.1, 0.2, -9.0], "units": [2]}, name="diverged", **one
        ),
        "front": experiment.run(
            spark,
            train,
            BOUNDS,
            searcher=experiment.NSGA2(popsize=6, generations=2),
            direction={"accuracy": "max", "latency": "min"},
            name="front",
            **several,
        ),
    }


@pytest.fixture(scope="module")
def board(results):
    folder = results["grid"].logdir.rpartition("/")[0]
    with experiment.tensorboard(folder) as board:
        yield board


def resumed_run(folder):
    """Make a run of 4 slots that was resumed with 2 others, of the same names, after an hour."""
    run = make_run(folder, name="resumed", ended=False)
    shutil.rmtree(run / "journal")
    records = 0
    for start, host, trials in ((0.0, "first", range(4)), (3_700.0, "second", range(4, 6))):
        slots = [f"1.{partition}.0" for partition in range(len(trials))]
        params = [{"learning_rate": (n + 1) / 100, "optimizer": "adam"} for n in trials]
        with Journal(run / "journal") as journal:
            lines = [
                msgspec.structs.replace(begun(records, 6), at=start),
                *(Joined(slot, host, (), at=start) for slot in slots),
                *(
                    Planned(Trial(trial, given), 1, slot, at=start)
                    for trial, given, slot in zip(trials, params, slots, strict=True)
                ),
                *(msgspec.structs.replace(finished(trial), at=start + 100) for trial in trials),
                Waiting(slots[0], "no trial yet", at=start + 100),
            ]
            for line in lines:
                journal.append(line)
        records += len(lines)
    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folders of runs that were made without Spark, by name; the newest one is damaged."""
    objectives = [(0.99, 50.0), (0.95, 10.0), (0.9, 3.0), (0.1, 500.0)]  # the last one is bad

    def outcome_of(trial):
        values = dict(zip(("accuracy", "latency"), objectives[trial.id], strict=True))
        return Outcome(trial.id, "finished", metrics=values, values=values)

    def slower(trial):
        metrics = {"accuracy": 0.5}
        return Outcome(trial.id, "finished", 0.5, "accuracy", metrics, seconds=9 - trial.id)

    goal = {"accuracy": "max", "latency": "min"}
    kinds = {
        "one": {},
        "two": {},
        "three": {},
        "front": {"trials": 4, "direction": goal, "outcome_of": outcome_of},
        "running": {"running": (2, 5), "ended": False},
        "growing": {"running": (5,), "ended": False},
        "interrupted": {"running": (5,)},
        "followed": {"running": (4, 5), "ended": False},
        "named": {"points": [{"seconds": n, "x": n} for n in range(3)], "outcome_of": slower},
        "spaced": {"points": [{"a": ((64, 32), 3), "b": 1 / 3}, {"a": (64,), "b": "two words"}]},
        "removed": {"ended": False},
        "population": {"generations": True, "trials": 12, "running": (11,), "ended": False},
        "damaged": {"created": "2100-01-01T00:00:00+00:00"},
    }
    folder = tmp_path_factory.mktemp("made")
    runs = {name: make_run(folder, name=name, **facts) for name, facts in kinds.items()}
    runs["resumed"] = resumed_run(folder)
    (runs["damaged"] / "journal" / "000001.jsonl").write_bytes(b"nonsense\n")
    return runs


@pytest.fixture(scope="module")
def board_of_made(made):
    with experiment.tensorboard(made["one"].parent) as board:
        yield board


@pytest.fixture
def open_made(open_tab, made, board_of_made):
    """Opens the tab with a run that was made without Spark, by its name."""
    return lambda name, view: open_tab(
        experiment.load(made[name]) if name else None, view, url=board_of_made.url
    )


def append(run, *records):
    """Append records to the journal of a run."""
    with (run / "journal" / "000001.jsonl").open("ab") as file:
        file.write(b"".join(map(encode_line, records)))


def finished(trial):
    return Finished(1, Outcome(trial, "finished", 0.5, "accuracy", {"accuracy": 0.5}), at=9e9)


def wait_for_answers(page, url, count=2):
    """Wait for answers to the page: it has taken the first one when the second one comes."""
    for _ in range(count):
        with page.expect_response(url):
            pass


def hold(page, url):
    """Hold back what the page asks from now on; return the list to which each question is added."""
    held = []

    def keep(route):
        held.append(route)

    page.route(url, keep)
    return held


@pytest.fixture
def open_tab(chromium, request):
    """Opens the tab and returns its frame; checks that the page asks no other server."""
    opened = []

    def open_tab(result=None, view="", url=None, fragment=""):
        url = url or request.getfixturevalue("board").url  # whose searches take a while
        page = chromium.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(60_000)
        asked, errors = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        opened.append((page, asked, errors))
        name = "" if result is None else quote(result.logdir.rpartition("/")[2])
        parts = {"run": name, "view": view}
        given = "".join(f"&p.experiment.{k}={v}" for k, v in parts.items() if v)
        page.goto(f"{url}/#experiment{given}{fragment}")
        frame = page.frame_locator("iframe")
        frame.locator("body[data-filled]").wait_for(state="attached")
        return page, frame

    yield open_tab
    for page, asked, errors in opened:
        page.close()
        assert errors == []
        assert all(url.startswith(("http://127.0.0.1:", "data:", "blob:")) for url in asked)


def drawn(frame, label):
    """Return whether a canvas has anything but axes, which are grey."""
    canvas = frame.locator(f"canvas[aria-label*='{label}']").first
    canvas.wait_for()
    return canvas.evaluate(
        """canvas => {
          const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          for (let at = 0; at < data.length; at += 4) {
            const colours = data.slice(at, at + 3);
            if (data[at + 3] > 100 && Math.max(...colours) - Math.min(...colours) > 60) return true;
          }
          return false;
        }"""
    )


def points(frame, label):
    """Return how many points a chart has, as it says to screen readers."""
    canvas = frame.locator(f"canvas[aria-label*='{label}']").first
    canvas.wait_for()
    return int(re.search(r"(\d+) points; arrow keys", canvas.get_attribute("aria-label"))[1])


def tips(page, chart, count):
    """Return what a chart says of so many points, to which arrow keys go."""
    chart.locator("canvas").focus()
    said = []
    for _ in range(count):
        page.keyboard.press("ArrowRight")
        said.append(chart.get_by_role("status").inner_text())
    return said


def rows(frame):
    """Return the cells of the rows of the table of trials that are on the screen."""
    return frame.locator("[role=row]:not(.head)").evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_view_of_each_kind_of_search_is_filled(open_tab, results, kind):
    result = results[kind]
    page, frame = open_tab(result, "overview")
    assert drawn(frame, "Best value so far")
    assert points(frame, "Best value so far") > len(result.trials) / 2  # all but outliers
    frame.get_by_role("tab", name="Trials").click()
    grid = frame.get_by_role("grid")
    assert grid.get_attribute("aria-rowcount") == str(len(result.trials) + 1)
    assert sorted(int(row[0]) for row in rows(frame)) == [trial.id for trial in result.trials]
    frame.get_by_role("tab", name="Parameters").click()
    names = result.trials[0].params if result.space is None else result.space
    bars = frame.get_by_label("Importance").locator("li")
    wait_until(page, lambda: bars.count() == len(names))
    for name in names:
        assert drawn(frame, f" by {name}.")
    assert drawn(frame, "the brighter, the better")
    assert points(frame, "the brighter, the better") > 0
    assert drawn(frame, "Parallel coordinates")
    frame.get_by_role("tab", name="Population").click()
    shown = "Population, " if kind in POPULATIONS else "Proposed trials"
    assert drawn(frame, shown)
    assert points(frame, shown) > 0
    if kind == "front":
        assert drawn(frame, "Pareto front")
    frame.get_by_role("tab", name="Slots").click()
    assert drawn(frame, "Timeline of")
    assert frame.get_by_role("table", name="Slots").locator("tbody tr").count() > 0
    frame.get_by_role("tab", name="Runs").click()
    table = frame.get_by_role("table", name="Runs", exact=True)
    assert table.get_by_text(result.logdir.rpartition("/")[2]).is_visible()


def test_the_runs_of_a_folder_are_compared_side_by_side(open_tab, results):
    _, frame = open_tab()
    table = frame.get_by_role("table", name="Runs", exact=True)
    assert table.locator("tbody tr").count() == len(results)
    for name in ("evolution", "grid"):
        folder = results[name].logdir.rpartition("/")[2]
        result = results[name]
        row = table.locator("tr", has_text=folder).locator("td").all_inner_texts()
        call = "evolutionary_search" if name == "evolution" else "launch"
        ended = len(result.trials)
        best = f"accuracy {result.best.value:.6g}"
        assert (row[2], row[5]) == (call, "finished")
        assert row[6:] == [f"{ended} of {ended}", str(len(result.failed)), best]
        frame.get_by_label(f"compare {folder}").check()
    frame.get_by_label("Best value so far of each chosen run").locator("canvas").wait_for()
    beside = frame.get_by_role("table", name="Best configurations and settings side by side")
    different = beside.locator("tr.differs").all_inner_texts()
    assert any("evolutionary_search" in line and "launch" in line for line in different)
    best = f"{results['evolution'].best.value:.6g}"
    assert best in beside.inner_text()
    assert "\nBest trial\n" in beside.inner_text()
    # The last point of each run is at the number of its trials: failed ones count.
    ended = max(len(results[name].trials) for name in ("evolution", "grid"))
    chart = frame.get_by_label("Best value so far of each chosen run")
    over = chart.locator(".u-over")
    for from_the_end in (300, 3):  # the chart shows nothing for the first movement
        over.hover(position={"x": over.bounding_box()["width"] - from_the_end, "y": 100})
    chart.locator(".u-legend tr").first.get_by_text(str(ended), exact=True).wait_for()
    frame.get_by_label("Best so far over").select_option("time in seconds")
    chart.locator(".u-legend tr").first.get_by_text("seconds", exact=True).wait_for()
    assert chart.locator("canvas").count() == 1


def test_a_run_with_a_damaged_journal_says_so_and_hides_no_other(open_made, made):
    _, frame = open_made("", "")  # the newest one cannot be shown
    alert = frame.get_by_role("alert")
    assert "repair" in alert.inner_text()
    frame.get_by_role("tab", name="Overview").click()
    assert not alert.is_visible()
    assert "trials ended" in frame.get_by_label("State").inner_text()
    frame.get_by_role("tab", name="Runs").click()
    frame.get_by_role("button", name=made["damaged"].name).click()
    alert.wait_for()
    for name in ("damaged", "one", "two"):
        frame.get_by_label(f"compare {made[name].name}").check()
    beside = frame.get_by_role("table", name="Best configurations and settings side by side")
    heads = beside.locator("thead th").all_inner_texts()[2:]
    assert sorted(heads) == [made["one"].name, made["two"].name]
    assert "repair" in frame.locator(".compare").inner_text()


def test_a_run_that_was_removed_hides_no_change_of_another(open_made, made):
    _, frame = open_made("removed", "runs")
    table = frame.get_by_role("table", name="Runs", exact=True)
    growing = table.locator("tr", has_text=made["growing"].name)
    growing.get_by_text("5 of 6").wait_for()
    shutil.rmtree(made["removed"])
    frame.get_by_text("there is no such run").wait_for()
    assert frame.get_by_text("no answer from the server").count() == 0
    table.get_by_text(made["removed"].name).wait_for(state="detached")
    append(made["growing"], finished(5))
    growing.get_by_text("6 of 6").wait_for()


def test_a_run_that_is_no_longer_chosen_is_not_compared_when_it_has_been_read(open_made, made):
    page, frame = open_made("one", "runs")
    for name in ("one", "two"):
        frame.get_by_label(f"compare {made[name].name}").check()
    beside = frame.get_by_role("table", name="Best configurations and settings side by side")
    beside.wait_for()
    held = hold(page, re.compile(r"/run\?run=three-"))
    frame.get_by_label(f"compare {made['three'].name}").check()
    wait_until(page, lambda: bool(held))
    wait_for_answers(page, ASKED_RUNS)
    assert frame.get_by_text("no answer from the server").count() == 0
    frame.get_by_label(f"compare {made['three'].name}").uncheck()
    beside.wait_for()
    with page.expect_response(ASKED_RUN):
        held[0].continue_()
    wait_for_answers(page, ASKED_RUNS)
    assert made["three"].name not in beside.inner_text()


def test_a_run_that_is_opened_stays_though_one_that_was_opened_before_is_answered_later(
    open_made, made
):
    page, frame = open_made("one", "runs")
    before = re.compile(r"/run\?run=population-")
    held = hold(page, before)
    frame.get_by_role("button", name=made["population"].name).click()
    wait_until(page, lambda: bool(held))
    frame.get_by_role("button", name=made["running"].name).click()
    wait_until(page, lambda: page.title().startswith("running-"))
    page.route(before, lambda route: route.continue_())  # what is asked from now on
    with page.expect_response(before):
        held[0].continue_()
    wait_for_answers(page, ASKED_RUN)
    assert page.title().startswith("running-")


def test_the_menu_of_runs_stays_while_nothing_changes_and_a_loss_is_said_until_it_ends(open_made):
    page, frame = open_made("one", "runs")
    menu = frame.get_by_role("combobox", name="Run", exact=True)
    menu.focus()
    same = menu.element_handle()
    wait_for_answers(page, ASKED_RUNS)
    assert same.evaluate("menu => menu === document.activeElement")
    page.route(ASKED_RUNS, lambda route: route.abort())
    frame.get_by_text("no answer from the server").wait_for()
    page.unroute(ASKED_RUNS)
    frame.get_by_text("6 of 6 trials, finished").wait_for()


def test_a_run_that_is_resumed_is_followed_though_it_had_ended(open_made, made):
    _, frame = open_made("interrupted", "overview")
    running = frame.get_by_label("Running now")
    assert "Nothing: the search has ended." in running.inner_text()
    run = made["interrupted"]
    records = len((run / "journal" / "000001.jsonl").read_bytes().splitlines())
    params = {"learning_rate": 0.06, "optimizer": "adam"}
    (run / "result.json").unlink()
    with Journal(run / "journal") as journal:
        journal.append(begun(records, 6))
        journal.append(Planned(Trial(5, params), 2, "1.0.0", at=9e9))
        running.get_by_text("trial 5").wait_for()
        journal.append(msgspec.structs.replace(finished(5), attempt=2))
    frame.get_by_label("State").get_by_text("6 of 6 trials ended").wait_for()


def test_of_a_killed_driver_no_trial_runs(open_tab, tmp_path):
    run = make_run(tmp_path, running=(4, 5), ended=False)
    mark_as_owned(run)
    with experiment.tensorboard(run) as board:
        _, frame = open_tab(view="overview", url=board.url)
        running = frame.get_by_label("Running now")
        running.get_by_text("Nothing: the driver is gone.").wait_for()


def test_a_link_to_a_run_that_is_not_there_says_so_and_opens_no_trial(open_tab, board_of_made):
    link = "&p.experiment.run=gone&p.experiment.trial=1"
    _, frame = open_tab(url=board_of_made.url, fragment=link)
    assert frame.get_by_role("alert").inner_text() == "There is no run gone in this folder."
    assert frame.get_by_role("dialog").count() == 0


def test_a_page_without_a_run_or_an_answer_at_its_start_looks_again(chromium, board_of_made):
    page = chromium.new_page()
    page.route(ASKED_RUNS, lambda route: route.abort())
    page.goto(f"{board_of_made.url}/#experiment")
    frame = page.frame_locator("iframe")
    frame.get_by_text("no answer from the server").wait_for()
    page.route(ASKED_RUNS, lambda route: route.fulfill(json=[]))
    frame.get_by_text("There is no run in this folder.").wait_for()
    page.unroute(ASKED_RUNS)
    frame.get_by_role("table", name="Runs", exact=True).wait_for()
    assert frame.get_by_text("There is no run in this folder.").count() == 0
    page.close()


def test_menus_and_the_place_of_a_table_stay_while_a_run_grows(open_made, made):
    page, frame = open_made("followed", "parameters")
    has_focus = "menu => menu === document.activeElement"
    menu = frame.get_by_label("Horizontal axis")
    menu.focus()
    same = menu.element_handle()
    append(made["followed"], finished(4))
    frame.get_by_text("5 of 6 trials").wait_for()
    assert same.evaluate(has_focus)
    frame.get_by_role("tab", name="Runs").click()
    for name in ("followed", "two"):
        frame.get_by_label(f"compare {made[name].name}").check()
    menu = frame.get_by_label("Best so far over")
    menu.focus()
    same = menu.element_handle()
    below = frame.locator(".compare")
    below.evaluate("below => { below.scrollTop = 50; }")
    append(made["followed"], finished(5))
    beside = frame.get_by_role("table", name="Best configurations and settings side by side")
    wait_until(page, lambda: beside.get_by_text("6 of 6").count() == 2)
    assert same.evaluate(has_focus)
    assert below.evaluate("below => below.scrollTop") == 50


def test_what_is_new_is_taken_once_though_the_page_asks_again_before_the_answer(open_made, made):
    page, frame = open_made("population", "runs")
    held = hold(page, ASKED_RUN)
    wait_until(page, lambda: bool(held))
    append(made["population"], finished(11), Selected([Selection(11, True, None)], at=9e9))
    wait_for_answers(page, ASKED_RUNS)
    page.route(ASKED_RUN, lambda route: route.continue_())  # what is asked from now on
    for route in held:
        with page.expect_response(ASKED_RUN):
            route.continue_()
    wait_for_answers(page, ASKED_RUN, 1)
    frame.get_by_role("tab", name="Population").click()
    selections = frame.get_by_role("table", name="Selections of generation 2")
    assert selections.locator("tbody tr").count() == 1


def test_the_overview_has_the_best_configuration_as_python(open_tab, results):
    result = results["evolution"]
    _, frame = open_tab(result, "overview")
    code = frame.get_by_label("Best configuration").locator("pre").inner_text()
    found = {}
    exec(code, found)
    assert found["params"] == result.best.params
    assert "24 of 24 trials ended" in frame.get_by_label("State").inner_text()
    assert drawn(frame, "Best value so far")
    frame.get_by_role("combobox", name="Over", exact=True).select_option("time")
    frame.locator("canvas[aria-label*='time since the start']").wait_for()


def test_the_overview_leads_to_the_failed_trials(open_tab, results):
    result = results["evolution"]
    _, frame = open_tab(result, "overview")
    frame.get_by_label("State").get_by_role("button", name=f"{len(result.failed)} failed").click()
    assert frame.get_by_label("Filter").input_value() == "status=failed"
    failed = [str(trial.id) for trial in result.failed]
    assert sorted(row[0] for row in rows(frame)) == sorted(failed)


def test_the_overview_tells_stopped_trials_apart(open_tab, results):
    page, frame = open_tab(results["stopped"], "overview")
    chart = frame.locator(".figure", has=frame.locator("canvas[aria-label^='Best value']"))
    said = sorted(tip.split("\n")[0] for tip in tips(page, chart, 2))
    assert said == ["trial 0: 0.2", "trial 1: stopped early, 0.9"]


def test_a_chart_stays_with_the_chosen_trial_when_others_end(open_made, made):
    page, frame = open_made("running", "overview")
    chart = frame.locator(".figure", has=frame.locator("canvas[aria-label^='Best value']"))
    chart.locator("canvas").focus()
    tip = chart.get_by_role("status")
    for trial in (5, 2):  # from the last one back
        page.keyboard.press("ArrowLeft")
        assert tip.inner_text().startswith(f"trial {trial}: running")
    append(made["running"], finished(5))
    frame.get_by_label("State").get_by_text("5 of 6 trials ended").wait_for()
    assert tip.inner_text().startswith("trial 2: running")
    page.keyboard.press("Enter")
    frame.get_by_role("dialog", name="Trial 2").wait_for()


def test_a_running_trial_is_followed_after_a_question_that_had_no_answer(open_made):
    page, frame = open_made("running", "trials")
    frame.get_by_label("Filter").fill("trial=2")
    frame.locator("[role=row]:not(.head)").first.click()
    dialog = frame.get_by_role("dialog", name="Trial 2")
    hyperparameters = dialog.get_by_role("table", name="Hyperparameters")
    hyperparameters.wait_for()
    asked = re.compile(r"/experiment/trial\?")
    page.route(asked, lambda route: route.abort())
    dialog.get_by_text("Failed to fetch").wait_for()
    assert hyperparameters.is_visible()
    page.unroute(asked)
    dialog.get_by_text("Failed to fetch").wait_for(state="hidden")


def test_the_overview_says_how_many_outliers_it_leaves_out(open_tab, results):
    _, frame = open_tab(results["diverged"], "overview")
    label = frame.locator("canvas[aria-label^='Best value so far']")
    label.wait_for()
    assert "1 outlier not shown" in label.get_attribute("aria-label")
    frame.get_by_label("All values, outliers too").check()
    assert "not shown" not in label.get_attribute("aria-label")


def test_the_trials_are_sorted_filtered_and_opened(open_tab, results):
    result = results["evolution"]
    page, frame = open_tab(result, "trials")
    ranking = [str(trial.id) for trial in result.ranking]
    assert [row[0] for row in rows(frame)][:3] == ranking[:3]
    heads = frame.get_by_role("columnheader")
    units = heads.all_inner_texts().index("units")
    assert rows(frame)[0][units] == str(result.best.params["units"])  # 8, not 8.000
    frame.get_by_text("Columns").click()
    frame.get_by_role("checkbox", name="units").uncheck()
    assert "units" not in heads.all_inner_texts()
    frame.get_by_text("Columns").click()
    head = frame.get_by_role("button", name="trial", exact=True)
    head.click()
    assert head.evaluate("button => button === document.activeElement")  # though made anew
    assert [row[0] for row in rows(frame)][:3] == ["0", "1", "2"]
    frame.get_by_label("Filter").fill("status=failed")
    failed = [str(trial.id) for trial in result.failed]
    assert sorted(row[0] for row in rows(frame)) == sorted(failed)
    assert frame.get_by_role("grid").get_attribute("aria-rowcount") == str(1 + len(failed))
    frame.locator("[role=row]:not(.head)").first.click()
    dialog = frame.get_by_role("dialog")
    dialog.get_by_text("Failed: user error").wait_for()
    text = dialog.inner_text()
    assert "ValueError: three units are <b>too few</b>" in text
    assert "Traceback (most recent call last)" in text
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_the_trials_are_sorted_by_the_objective_that_was_chosen(open_made):
    _, frame = open_made("front", "overview")
    frame.get_by_role("combobox", name="Objective", exact=True).select_option("latency")
    frame.get_by_role("tab", name="Trials").click()
    assert [row[0] for row in rows(frame)] == ["2", "1", "0", "3"]


@pytest.mark.parametrize(
    "term", ["a=((64, 32), 3)", "b=0.333333", "b!='two words'", "status!=failed"]
)
def test_a_filter_takes_values_as_the_table_shows_them(open_made, term):
    _, frame = open_made("spaced", "trials")
    frame.get_by_label("Filter").fill(term)
    assert [row[0] for row in rows(frame)] == ["0"]


def test_a_hyperparameter_with_the_name_of_a_column_is_told_apart_from_it(open_made):
    _, frame = open_made("named", "trials")
    frame.get_by_role("button", name="took", exact=True).click()
    assert [row[0] for row in rows(frame)] == ["0", "1", "2"]  # the longest first
    heads = frame.get_by_role("columnheader")
    assert heads.all_inner_texts()[3:6] == ["params.seconds", "x", "took ▼"]
    for term, found in [("seconds>=8", "01"), ("params.seconds>=1", "12"), ("x=1", "1")]:
        frame.get_by_label("Filter").fill(term)
        assert "".join(row[0] for row in rows(frame)) == found
    frame.get_by_text("Columns").click()
    frame.get_by_role("checkbox", name="params.seconds").uncheck()
    assert heads.all_inner_texts()[3:5] == ["x", "took ▼"]


def test_a_configuration_is_copied_where_scripts_have_no_clipboard(open_made):
    page, frame = open_made("one", "trials")
    frame.locator("body").evaluate("() => delete Navigator.prototype.clipboard")
    frame.locator("[role=row]:not(.head)").first.click()
    dialog = frame.get_by_role("dialog")
    dialog.get_by_role("button", name="Copy").click()
    copied = dialog.get_by_role("button", name="Copied", exact=True)
    copied.wait_for()
    assert copied.evaluate("button => button === document.activeElement")
    page.keyboard.press("Escape")
    frame.get_by_label("Filter").focus()
    page.keyboard.press("Control+V")
    assert frame.get_by_label("Filter").input_value().startswith("params = {")


def test_a_copy_that_the_browser_refuses_is_no_copy(open_made):
    _, frame = open_made("one", "overview")
    frame.locator("body").evaluate(
        "() => { delete Navigator.prototype.clipboard; document.execCommand = () => false; }"
    )
    best = frame.get_by_label("Best configuration")
    best.get_by_role("button", name="Copy").click()
    best.get_by_role("button", name="Not copied", exact=True).wait_for()


def test_a_trial_has_its_curves_and_its_output(open_tab, results):
    result = results["grid"]
    _, frame = open_tab(result, "trials")
    frame.locator("[role=row]:not(.head)").first.click()
    dialog = frame.get_by_role("dialog")
    dialog.get_by_label("Curve of loss by step").locator("canvas").wait_for()
    assert "training with <i>care</i>" in dialog.inner_text()
    assert f"/trials/{result.best.id:06d}" in dialog.inner_text()


def test_the_importance_is_that_of_the_result(open_tab, results):
    result = results["steady"]
    page, frame = open_tab(result, "parameters")
    bars = frame.get_by_label("Importance").locator("li")
    bars.first.wait_for()
    expected = list(result.importance()["hyperparameter"])
    wait_until(page, lambda: [text.split("\n")[0] for text in bars.all_inner_texts()] == expected)
    for name in BOUNDS:
        assert drawn(frame, f"by {name}.")
    # The contour is of the most important ones, until others are chosen.
    assert drawn(frame, f"by {expected[0]} and {expected[1]};")
    frame.get_by_label("Horizontal axis").select_option(expected[2])
    assert drawn(frame, f"by {expected[2]} and {expected[1]};")


def test_trials_are_kept_by_a_part_of_an_axis(open_tab, results):
    result = results["steady"]
    page, frame = open_tab(result, "parameters")
    chart = frame.get_by_role("region", name="All hyperparameters")
    assert drawn(frame, "Parallel coordinates")
    label = chart.locator("canvas").get_attribute("aria-label")
    assert "over rate (log), units, kind, decay, accuracy ↑." in label
    says = chart.get_by_role("status")
    assert says.inner_text() == f"{len(result.scores)} trials with a value"
    chart.locator("canvas").focus()
    page.keyboard.press("ArrowUp")  # the lowest quarter of the first axis
    kept = [trial for trial, _ in result.scores if math.log10(trial.params["rate"]) <= -4 + 3 / 4]
    assert says.inner_text().startswith(f"{len(kept)} trial")
    assert "kept" in says.inner_text()
    page.keyboard.press("Escape")
    assert says.inner_text() == f"{len(result.scores)} trials with a value"


def test_the_population_is_shown_generation_by_generation(open_tab, results):
    _, frame = open_tab(results["evolution"], "population")
    slider = frame.get_by_role("slider")
    assert slider.get_attribute("max") == "3"
    slider.fill("1")
    status = frame.locator("[role=status]", has_text="generation 1: 6 members").first
    status.wait_for()
    selections = frame.get_by_role("table", name="Selections of generation 1")
    assert selections.locator("tbody tr").count() == 6
    assert drawn(frame, "Population, generation 1")
    for title in ("Best and mean of the population", "Share accepted", "Diversity"):
        frame.get_by_role("img", name=title, exact=True).locator("canvas").wait_for()
    slider.fill("0")  # all of its candidates found free places, failed ones too
    status = frame.locator("[role=status]", has_text="generation 0: 6 members, took").first
    status.wait_for()
    assert "accepted" not in status.inner_text()
    selections = frame.get_by_role("table", name="Selections of generation 0")
    assert selections.locator("tbody").get_by_text("took a free place").count() == 6


def test_a_search_without_generations_has_stages_by_trials(open_tab, results):
    _, frame = open_tab(results["steady"], "population")
    frame.locator("[role=status]", has_text="after 24 trials").first.wait_for()
    slider = frame.get_by_role("slider")
    assert slider.input_value() == slider.get_attribute("max") == "23"
    frame.get_by_role("button", name="Play").click()  # from the first stage on
    frame.locator("[role=status]", has_text="after 2 trials").first.wait_for()
    frame.get_by_role("button", name="Pause").click()
    frame.get_by_role("button", name="Play").wait_for()
    assert 0 < int(slider.input_value()) < 23


def test_several_objectives_have_a_front(open_tab, results):
    result = results["front"]
    _, frame = open_tab(result, "population")
    frame.locator(f"canvas[aria-label*='{len(result.front)} trial']").first.wait_for()
    assert drawn(frame, "Pareto front")


def test_all_of_a_front_is_drawn_and_what_is_left_out_is_counted(open_made):
    page, frame = open_made("front", "population")
    chart = frame.get_by_role("region", name="Pareto front")
    assert points(frame, "Pareto front: ◆ 3 trials of 4. 1 outlier not shown.") == 3
    said = tips(page, chart, 3)
    assert sorted(tip.split("\n")[0] for tip in said) == [
        f"trial {trial}, on the front" for trial in range(3)
    ]


def test_a_search_without_a_population_shows_where_it_looked(open_tab, results):
    _, frame = open_tab(results["grid"], "population")
    frame.get_by_text("This search has no population").wait_for()
    assert drawn(frame, "Proposed trials")


def test_a_search_by_a_model_shows_what_improvement_it_expected(open_tab, results):
    _, frame = open_tab(results["bayes"], "population")
    expected = frame.get_by_role("region", name="Expected improvement")
    expected.locator("canvas").wait_for()
    _, frame = open_tab(results["grid"], "population")
    frame.get_by_text("This search has no population").wait_for()
    assert not frame.get_by_role("region", name="Expected improvement").is_visible()


def test_the_slots_have_a_lane_each_and_a_table_of_reasons(open_tab, results):
    _, frame = open_tab(results["evolution"], "slots")
    status = frame.locator("[role=status]", has_text="% of the slots' time used").first
    status.wait_for()
    assert "2 slots" in status.inner_text()
    assert drawn(frame, "Timeline of 2 slots")
    assert frame.get_by_role("table", name="Slots").locator("tbody tr").count() == 2


def test_a_lost_slot_says_why_it_left_and_its_trial_opens_with_the_keyboard(open_tab, results):
    page, frame = open_tab(results["lost"], "slots")
    lost, later = frame.get_by_role("table", name="Slots").locator("tbody tr").all_inner_texts()
    assert lost.startswith("1.0.0")
    assert lost.endswith("its executor on host host was lost")
    assert later.startswith("1.0.1")
    assert not later.endswith("lost")
    assert drawn(frame, "Timeline of 2 slots")  # though all trials ended within a second
    frame.get_by_role("group", name="Timeline").focus()
    tip = frame.locator(".tip")
    for trial in (0, 1, 2):
        page.keyboard.press("ArrowDown")
        assert tip.inner_text().startswith(f"trial {trial}: ")
    page.keyboard.press("ArrowDown")  # where the lane ends
    assert tip.inner_text().startswith("trial 3: lost after ")
    assert "its executor on host host was lost" in tip.inner_text()
    page.keyboard.press("Enter")
    frame.get_by_role("dialog", name="Trial 3").wait_for()


def test_the_slots_of_a_resumed_run_have_lanes_of_their_own_without_the_pause(open_made):
    _, frame = open_made("resumed", "slots")
    frame.get_by_text("6 slots, 100 % of the slots' time used", exact=True).wait_for()
    lines = frame.get_by_role("table", name="Slots").locator("tbody tr").all_inner_texts()
    cells = [line.split("\t") for line in lines]
    assert [[*row[:4], row[5]] for row in cells] == [
        *([f"1.{n}.0", "first", "1", "100 %", "its application ended"] for n in range(4)),
        *([f"1.{n}.0", "second", "1", "100 %", ""] for n in range(2)),
    ]


def test_the_questions_of_a_new_user_are_answered_in_words(open_tab, results):
    evolution, steady = results["evolution"], results["steady"]
    # Which trial is best, and with what?
    _, frame = open_tab(evolution, "overview")
    best = frame.get_by_label("Best configuration").inner_text()
    assert f"in trial {evolution.best.id}" in best
    assert all(repr(value) in best for value in evolution.best.params.values())
    # Which hyperparameter matters most?
    _, frame = open_tab(steady, "parameters")
    most = steady.importance()["hyperparameter"][0]
    frame.get_by_role("status").filter(has_text=f"{most} matters most").wait_for()
    # Was the last generation worth it?
    _, frame = open_tab(evolution, "population")
    values = [-1.0 if trial.value is None else trial.value for trial in evolution.trials]
    last, before = max(values[18:]), max(values[:18])  # the last one has 6 trials
    said = f"before {before:.6g}" if last > before else "no better than before"
    frame.get_by_role("status").filter(has_text=said).wait_for()
    # Which slot stood idle, and why?
    _, frame = open_tab(evolution, "slots")
    slots = frame.get_by_role("table", name="Slots")
    slots.get_by_text(
        "for outcomes of other trials, as at the end of a generation"
    ).first.wait_for()
    # Why did this trial fail?
    _, frame = open_tab(evolution, "trials")
    failed = evolution.failed[0].id
    frame.get_by_label("Filter").fill(f"trial={failed}")
    assert "too few" in rows(frame)[0][-1]
    frame.locator("[role=row]:not(.head)").first.click()
    frame.get_by_role("dialog", name=f"Trial {failed}").get_by_text("Traceback").wait_for()
    # Which of two runs was better, and at what do they differ?
    _, frame = open_tab(view="runs")
    for name in ("evolution", "grid"):
        run = results[name].logdir.rpartition("/")[2]
        frame.get_by_label(f"compare {run}").check()
    better = max(evolution, results["grid"], key=lambda result: result.best.value)
    said = f"Best of these: {better.logdir.rpartition('/')[2]}"
    frame.get_by_role("status").filter(has_text=said).wait_for()
    side = frame.get_by_role("table", name="Best configurations and settings side by side")
    assert side.locator("tr.differs", has_text="evolutionary_search").count() == 1


def test_the_colours_follow_those_of_tensorboard(open_tab, results):
    page, frame = open_tab(results["evolution"], "overview")
    background = "() => getComputedStyle(document.body).backgroundColor"
    body = frame.locator("body")
    light = body.evaluate(background)
    page.evaluate("document.body.classList.toggle('dark-mode')")
    wait_until(page, lambda: body.evaluate(background) != light)
    assert drawn(frame, "Best value so far")


def test_views_and_trials_can_be_reached_with_the_keyboard(open_tab, results):
    result = results["evolution"]
    page, frame = open_tab(result, "overview")
    frame.get_by_role("tab", name="Overview").focus()
    page.keyboard.press("ArrowRight")
    assert frame.get_by_role("tab", name="Trials").get_attribute("aria-selected") == "true"
    grid = frame.get_by_role("grid")
    grid.focus()
    page.keyboard.press("ArrowDown")
    active = frame.locator(f"[id='{grid.get_attribute('aria-activedescendant')}']")
    assert active.get_attribute("aria-selected") == "true"
    page.keyboard.press("Enter")
    frame.get_by_role("dialog", name=f"Trial {result.ranking[1].id}").wait_for()


def test_an_address_that_is_passed_on_opens_the_same_view(open_tab, results):
    page, _ = open_tab(results["grid"], "trials")
    assert "p.experiment.view=trials" in page.url
    assert results["grid"].logdir.rpartition("/")[2] in page.url
    assert page.title().startswith("grid-")


def test_a_trial_that_ends_appears_by_itself(open_tab, sparks, tmp_path):
    release = tmp_path / "release"

    def waits(x):
        import time

        if x == 1:
            raise ValueError("one is too few")
        while x > 2 and not release.exists():
            time.sleep(0.05)
        return x

    search = threading.Thread(
        target=experiment.launch,
        args=(sparks.get("local[2]"), waits, {"x": [0, 1, 2, 3, 4]}),
        kwargs={"logdir": tmp_path / "runs", **SETTINGS},
    )
    search.start()
    try:
        while len(list(tmp_path.glob("runs/*/trials/*/outcome.json"))) < 3:
            assert search.is_alive()
            search.join(0.05)
        [run] = (tmp_path / "runs").iterdir()
        with experiment.tensorboard(run) as board:
            page, frame = open_tab(view="overview", url=board.url)
            running = frame.get_by_label("Running now")
            wait_until(page, lambda: "trial 4" in running.inner_text())
            state = frame.get_by_label("State")
            wait_until(page, lambda: re.search("about .+ left", state.inner_text()) is not None)
            chart = frame.locator(".figure", has=frame.locator("canvas[aria-label^='Best value']"))
            said = sorted(tips(page, chart, 5))
            assert said[0].startswith("trial 0: 0\n")
            assert said[1].startswith("trial 1: user error: ValueError: one is too few\n")
            assert said[2].startswith("trial 2: 2\n")
            assert [tip.split("\n")[0] for tip in said[3:]] == [
                "trial 3: running",
                "trial 4: running",
            ]
            _, beside = open_tab(view="trials", url=board.url)
            beside.get_by_label("Filter").fill("trial=4")
            beside.locator("[role=row]:not(.head)").first.click()
            dialog = beside.get_by_role("dialog", name="Trial 4")
            dialog.get_by_text("running").first.wait_for()
            release.touch()
            dialog.get_by_text("finished, value 4").wait_for()
            # The end of its output may arrive after its outcome.
            [output] = tmp_path.glob("runs/*/trials/000004/stdout.log")
            output.write_text("the last words\n")
            dialog.get_by_text("the last words").wait_for()
            state.get_by_text("5 of 5 trials ended").wait_for()
            assert "left" not in state.inner_text()
            wait_until(page, lambda: "Nothing: the search has ended." in running.inner_text())
    finally:
        release.touch()
        search.join()
