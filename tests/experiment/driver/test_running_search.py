"""How a search ends."""

from types import SimpleNamespace

import pytest

from experiment.driver.control import Control
from experiment.driver.interrupts import INTERRUPTED, Interrupts
from experiment.driver.running_search import RunningSearch


@pytest.mark.parametrize(
    ("done", "problem", "noted"), [(True, None, True), (False, INTERRUPTED, False)]
)
def test_an_interrupt_that_comes_with_the_last_outcome_is_noted(monkeypatch, done, problem, noted):
    """In the last call into the JVM it is not raised any more, and the search is complete."""
    interrupts = Interrupts(Control())

    def run(coordinator, tick):
        interrupts.control.cancel(INTERRUPTED)

    monkeypatch.setattr(RunningSearch, "_end", lambda search, problem: None)
    search = RunningSearch(
        prepared=None,
        run=None,
        coordinator=SimpleNamespace(trials=SimpleNamespace(done=done)),
        jobs=SimpleNamespace(run=run),
        board=None,
        progress=None,
        interrupts=interrupts,
    )
    assert (search.to_its_end(), interrupts.noted) == (problem, noted)
