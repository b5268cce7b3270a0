"""What a person sees in TensorBoard, in a real browser. Run by `make test-browser`."""

from __future__ import annotations

import threading

import pytest

import experiment
from tests.browser.pages import (
    axes,
    browser,
    open_page,
    points,
    rows_loaded,
    table,
    wait_until,
)

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium():
    with browser() as running:
        yield running


def train(rate, units, kind):
    if units == 3:
        raise ValueError("three units are <b>too few</b>")
    for step in range(3):
        experiment.report(step=step, loss=1.0 / (step + 1))
    return {"accuracy": rate * units, "loss": 1.0}


BOUNDS = {"rate": [0.1, 0.0001], "units": [2, 9], "kind": ["a", "b"]}
SETTINGS = {"optimization_key": "accuracy", "preload": (), "isolation": "none", "verbose": 0}


@pytest.fixture
def evolution(spark, logdir):
    """A finished search of 24 trials, some of them failed, with TensorBoard on it."""
    result = experiment.evolutionary_search(
        spark,
        train,
        BOUNDS,
        popsize=6,
        generations=3,
        generational=True,  # the same trials, whatever their order: some of them fail
        seed=1,
        logdir=logdir,
        **SETTINGS,
    )
    assert result.failed
    with experiment.tensorboard(result) as board:
        yield result, board


def test_the_table_has_a_row_per_trial_with_the_objective(chromium, evolution):
    result, board = evolution
    page = open_page(chromium, board, "trials")
    page.set_viewport_size({"width": 1500, "height": 1800})
    wait_until(page, lambda: len(table(page)) == 24)
    for row, trial in zip(table(page), result.trials, strict=True):
        assert row["Trial ID"] == f"{trial.id:06d} {result.logdir[-8:]}"
        assert row["kind"] == trial.params["kind"]
        assert float(row["rate"]) == pytest.approx(trial.params["rate"], rel=1e-3)
        assert float(row["units"]) == trial.params["units"]
        if trial.value is None:
            assert row["accuracy ↑"] == ""
        else:
            assert float(row["accuracy ↑"]) == pytest.approx(trial.value, rel=1e-3)
    page.close()


def test_failed_trials_can_be_filtered_by_their_status(chromium, evolution):
    result, board = evolution
    page = open_page(chromium, board, "trials")
    wait_until(page, lambda: rows_loaded(page) == 24)
    for status in ("Unknown", "Success", "Running"):
        page.locator("tf-hparams-query-pane paper-checkbox", has_text=status).click()
    failed = [f"{trial.id:06d} {result.logdir[-8:]}" for trial in result.failed]
    wait_until(page, lambda: rows_loaded(page) == len(failed))
    wait_until(page, lambda: [row.get("Trial ID") for row in table(page)] == failed)
    page.close()


def test_the_parallel_coordinates_have_all_axes_and_a_line_per_finished_trial(chromium, evolution):
    result, board = evolution
    page = open_page(chromium, board, "trials")
    page.get_by_text("Parallel Coordinates View").click()
    wait_until(page, lambda: len(axes(page)) == 6)
    assert sorted(axes(page)) == ["accuracy ↑", "generation", "kind", "loss", "rate", "units"]
    lines = page.locator("tf-hparams-parallel-coords-plot .foreground path")
    wait_until(page, lambda: lines.count() == len(result.trials) - len(result.failed))
    page.close()


def test_the_generations_are_charts_with_a_point_each(chromium, evolution):
    _, board = evolution
    page = open_page(chromium, board, "search: overview")
    lines = page.locator("tf-custom-scalar-multi-line-chart-card")
    wait_until(page, lambda: lines.count() == 6)
    # Else lines are cut off outside of the view, which depends on the order of the first trials.
    page.get_by_text("Ignore outliers in chart scaling").click()
    counts = {}
    for number in range(6):
        heading = lines.nth(number).locator("tf-card-heading")
        title = heading.evaluate("heading => heading.displayName")
        counts[title] = points(lines.nth(number))
    assert counts == {
        "Best": 4,
        "Diversity of the population": 4,
        "Share of new candidates accepted": 3,  # none in generation 0
        "Best so far": 24,
        "Trials done and failed": 24,
        "Slots busy": 24,
    }
    band = page.locator("tf-custom-scalar-margin-chart-card")
    assert points(band) == 4
    assert band.locator("path.area").count() >= 1
    page.close()


def test_the_link_to_the_search_shows_its_curves_and_its_population(chromium, evolution):
    result, board = evolution
    page = open_page(chromium, board, "search: curves")
    page.set_viewport_size({"width": 1500, "height": 4000})  # TensorBoard draws what is seen
    cards = page.locator("metrics-filtered-view card-view")
    wait_until(page, lambda: cards.count() > 0)
    best = cards.filter(has_text="generation/best").first
    best.locator("tb-data-table").get_by_text("search").first.wait_for()
    assert f"{result.best.value:.4g}" in best.locator("tb-data-table").inner_text()
    for title in [
        *(f"population/{name}" for name in BOUNDS),
        *(f"search/{name}" for name in ("best_so_far", "done", "failed", "slots_busy")),
        *(f"generation/{name}" for name in ("mean", "std", "diversity", "acceptance")),
    ]:
        cards.filter(has_text=title).first.wait_for()
    page.close()


def test_the_text_page_has_the_call_the_space_and_the_errors(chromium, evolution):
    result, board = evolution
    page = open_page(chromium, board, "call, space, errors")
    cards = page.locator("tf-text-loader")
    wait_until(page, lambda: cards.count() == 1 + len(result.failed))
    for text in [
        "experiment.evolutionary_search(spark, train, ..., popsize=6, generations=3",
        "0.0001 to 0.1",
        "float, log",
        *(f"failed/{trial.id:06d}" for trial in result.failed),
        "ValueError: three units are <b>too few</b>",
    ]:
        page.get_by_text(text).first.wait_for()
    page.close()


def test_a_search_that_runs_fills_the_table(chromium, spark, tmp_path):
    release = tmp_path / "release"

    def waits(x):
        import time

        while x > 2 and not release.exists():
            time.sleep(0.05)
        return x

    search = threading.Thread(
        target=experiment.launch,
        args=(spark, waits, {"x": [0, 1, 2, 3, 4]}),
        kwargs={"logdir": tmp_path / "runs", "isolation": "none", "verbose": 0},
    )
    search.start()
    try:
        folder = tmp_path / "runs"
        while len(list(folder.glob("*/trials/*/outcome.json"))) < 3:
            assert search.is_alive()
            search.join(0.05)
        (run,) = folder.iterdir()
        with experiment.tensorboard(run) as board:
            page = open_page(chromium, board, "trials")
            wait_until(page, lambda: rows_loaded(page) == 5)
            values = [row["metric ↑"] for row in table(page)]
            assert values == ["0.0000", "1.0000", "2.0000", "", ""]
            release.touch()
            search.join()
            refresh = page.locator("app-header-reload button, [title='Reload data'] button").first

            def all_there():
                refresh.click()
                return [row["metric ↑"] for row in table(page)][3:] == ["3.0000", "4.0000"]

            wait_until(page, all_there)
            page.close()
    finally:
        release.touch()
        search.join()


def test_a_thousand_trials_are_all_there(chromium, spark, logdir):
    result = experiment.evolutionary_search(
        spark,
        lambda x: -x * x,
        {"x": [-1.0, 1.0]},
        popsize=40,
        generations=24,
        logdir=logdir,
        isolation="none",
        verbose=0,
    )
    with experiment.tensorboard(result) as board:
        page = open_page(chromium, board, "trials")
        wait_until(page, lambda: rows_loaded(page) == 100)  # TensorBoard's page
        page.get_by_label("Max # of session groups per page:").fill("1000")
        page.keyboard.press("Enter")
        wait_until(page, lambda: rows_loaded(page) == 1000)
        page.close()
        page = open_page(chromium, board, "search: curves")  # one run, so TensorBoard selects it
        best = page.locator("metrics-filtered-view card-view", has_text="generation/best").first
        best.locator("tb-data-table").get_by_text("search").first.wait_for()
        page.close()
