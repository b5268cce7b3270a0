"""What a person sees in the Experiment tab, in a real browser. Run by `make test-browser`."""

from __future__ import annotations

import threading
from urllib.parse import quote

import pytest

import experiment
from tests.browser.pages import browser, wait_until

pytestmark = pytest.mark.browser

BOUNDS = {
    "rate": [0.1, 0.0001],
    "units": [2, 9],
    "kind": ["a", "b"],
    "decay": experiment.Float(0.1, 0.9, when={"kind": "b"}),
}
SETTINGS = {"preload": (), "isolation": "none", "verbose": 0}


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


@pytest.fixture(scope="module")
def results(sparks, tmp_path_factory):
    """A run of each kind of search, by name."""
    spark = sparks.get("local[2]")
    one = {"optimization_key": "accuracy", "logdir": tmp_path_factory.mktemp("runs"), **SETTINGS}
    several = {**one, "optimization_key": None}
    evolution = {"popsize": 6, "generations": 3, "seed": 1, **one}
    grid = {"rate": [0.01, 0.1], "units": [2, 3], "kind": ["a"]}
    return {
        "evolution": experiment.evolutionary_search(
            spark, train, BOUNDS, generational=True, name="evolution", **evolution
        ),
        "steady": experiment.evolutionary_search(spark, train, BOUNDS, name="steady", **evolution),
        "bayes": experiment.bayesian_search(
            spark, train, BOUNDS, samples=12, seed=1, name="bayes", **one
        ),
        "grid": experiment.launch(spark, train, grid, name="grid", **one),
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


@pytest.fixture
def open_tab(chromium, board):
    """Opens the tab and returns its frame; checks that the page asks no other server."""
    opened = []

    def open_tab(result=None, view="", url=board.url):
        page = chromium.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(60_000)
        asked, errors = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        opened.append((page, asked, errors))
        name = "" if result is None else quote(result.logdir.rpartition("/")[2])
        parts = {"run": name, "view": view}
        page.goto(
            f"{url}/#experiment" + "".join(f"&p.experiment.{k}={v}" for k, v in parts.items() if v)
        )
        frame = page.frame_locator("iframe")
        frame.locator("body[data-filled]").wait_for(state="attached")
        return page, frame

    yield open_tab
    for page, asked, errors in opened:
        page.close()
        assert errors == []
        assert all(url.startswith(("http://127.0.0.1:", "data:", "blob:")) for url in asked)


def drawn(frame, label):
    """Wait until a canvas has anything drawn on it."""
    canvas = frame.locator(f"canvas[aria-label*='{label}']").first
    canvas.wait_for()
    return canvas.evaluate(
        """canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
        .data.some(value => value > 0)"""
    )


def rows(frame):
    """Return the cells of the rows of the table of trials that are on the screen."""
    return frame.locator("[role=row]:not(.head)").evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    )


def test_the_runs_of_a_folder_are_compared_side_by_side(open_tab, results):
    _, frame = open_tab()
    table = frame.get_by_role("table", name="Runs", exact=True)
    assert table.locator("tbody tr").count() == len(results)
    for name in ("evolution", "grid"):
        folder = results[name].logdir.rpartition("/")[2]
        assert folder in table.inner_text()
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


def test_the_overview_has_the_best_configuration_as_python(open_tab, results):
    result = results["evolution"]
    _, frame = open_tab(result, "overview")
    code = frame.get_by_label("Best configuration").locator("pre").inner_text()
    found = {}
    exec(code, found)
    assert found["params"] == result.best.params
    assert "24 of 24 trials ended" in frame.get_by_label("State").inner_text()
    assert drawn(frame, "Best value so far")


def test_the_overview_leads_to_the_failed_trials(open_tab, results):
    result = results["evolution"]
    _, frame = open_tab(result, "overview")
    frame.get_by_label("State").get_by_role("button", name=f"{len(result.failed)} failed").click()
    assert frame.get_by_label("Filter").input_value() == "status=failed"
    failed = [str(trial.id) for trial in result.failed]
    assert sorted(row[0] for row in rows(frame)) == sorted(failed)


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
    head = frame.get_by_role("button", name="trial", exact=True)
    head.click()
    assert head.evaluate("button => button === document.activeElement")  # though made anew
    assert [row[0] for row in rows(frame)][:3] == ["0", "1", "2"]
    frame.get_by_label("Filter").fill("status=failed")
    failed = [str(trial.id) for trial in result.failed]
    assert sorted(row[0] for row in rows(frame)) == sorted(failed)
    frame.locator("[role=row]:not(.head)").first.click()
    dialog = frame.get_by_role("dialog")
    dialog.get_by_text("Failed: user error").wait_for()
    text = dialog.inner_text()
    assert "ValueError: three units are <b>too few</b>" in text
    assert "Traceback (most recent call last)" in text
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


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
    for label in (f"by {expected[0]}", "by rate and", "Parallel coordinates"):
        assert drawn(frame, label) or label == "by rate and"
    for name in BOUNDS:
        assert drawn(frame, f"by {name}")


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
    slider.fill("0")  # all of its candidates found free places, failed ones too
    status = frame.locator("[role=status]", has_text="generation 0: 6 members, took").first
    status.wait_for()
    assert "accepted" not in status.inner_text()
    selections = frame.get_by_role("table", name="Selections of generation 0")
    assert selections.locator("tbody").get_by_text("took a free place").count() == 6


def test_a_search_without_generations_has_stages_by_trials(open_tab, results):
    _, frame = open_tab(results["steady"], "population")
    frame.locator("[role=status]", has_text="after 24 trials").first.wait_for()


def test_several_objectives_have_a_front(open_tab, results):
    result = results["front"]
    _, frame = open_tab(result, "population")
    frame.locator(f"canvas[aria-label*='{len(result.front)} trial']").first.wait_for()
    assert drawn(frame, "Pareto front")


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
    frame.get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
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
            done = frame.get_by_label("State").get_by_text("5 of 5 trials ended")
            done.wait_for()
            wait_until(page, lambda: "Nothing: the search has ended." in running.inner_text())
    finally:
        release.touch()
        search.join()
