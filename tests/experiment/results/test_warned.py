"""The line that a warning names."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings

import pytest

import experiment
from experiment.results.warned import users_line, warn_at


def here() -> int:
    """Return the line number of the caller."""
    return inspect.stack()[1].lineno


def test_the_line_is_the_users_line():
    assert users_line()[:3] == (__file__, here(), __name__)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: None)
        with pytest.warns(UserWarning, match="said") as caught:
            warn_at(users_line(), "said")
    assert caught[0].filename == __file__


def test_a_warning_without_a_line_of_the_user_is_shown_too():
    with pytest.warns(UserWarning, match="^said$"):
        warn_at(None, "said")


def test_a_thread_warns_at_the_line_that_started_it():
    number = here() + 1
    line = experiment.submit(users_line).result()
    assert line[:3] == (__file__, number, __name__)


def test_the_same_warning_at_a_line_is_shown_once():
    line = users_line()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for message in ("one", "one", "two"):
            warn_at(line, message)
    assert [str(warning.message) for warning in caught] == ["one", "two"]
    assert {warning.lineno for warning in caught} == {line.number}


def silent(x):
    return {"score": x}


def call(search):
    """Run a search; return the line number of the call."""
    search()
    return here() - 1


def submit(search):
    """Run a search in the background; return the line number of the call."""
    handle = experiment.submit(search)
    handle.result()
    return here() - 2


@pytest.mark.parametrize("way", [call, submit])
def test_a_search_warns_at_the_line_that_called_it(spark, tmp_path, way):
    """The warning about trials without reports comes from the thread of the channel."""
    settings = {"logdir": tmp_path, "preload": (), "verbose": 0, "parallelism": 1}
    settings["stopping"] = experiment.MedianStopping()
    search = functools.partial(experiment.launch, spark, silent, {"x": [1.0]}, **settings)
    with pytest.warns(UserWarning, match="so it stops none of them") as caught:
        number = way(search)
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, number)]


def test_a_warning_of_the_channels_thread_ends_no_search(spark, tmp_path):
    """Warnings are errors here: the rule gets no reports, of which the driver warns."""
    result = experiment.launch(
        spark,
        silent,
        {"x": [1.0]},
        stopping=experiment.MedianStopping(),
        isolation="none",
        preload=(),
        verbose=0,
        logdir=tmp_path,
    )
    assert [trial.status for trial in result.trials] == ["finished"]
