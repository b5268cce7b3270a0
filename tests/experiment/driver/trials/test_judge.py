"""Warnings about trials that do not report the objective."""

from __future__ import annotations

import pytest

from experiment.driver.trials.judge import Judge
from experiment.run_files.run_state import RunState
from search.direction import Direction
from search.fidelity.growth import Growth
from search.stopping.rules import Threshold
from search.trial import Outcome
from spark_jobs.run_folder.paths import RunPaths


@pytest.mark.parametrize(
    ("stopping", "warning"),
    [
        ([], "the searcher needs {}, so it learns from their outcomes alone"),
        ([Threshold(upper=1.0)], "stopping= needs {}, so it stops none of them"),
    ],
)
def test_a_searcher_that_compares_running_trials_is_no_pruner(tmp_path, stopping, warning):
    warnings = []
    judge = Judge(
        Direction.MIN,
        "loss",
        stopping,
        Growth([1, 3, 9], Direction.MIN),
        state=RunState(RunPaths(tmp_path)),
        warn=warnings.append,
    )
    judge.ended(Outcome(0, "finished", 0.5, "loss", {"loss": 0.5}))
    assert warnings == [warning.format("reports of 'loss', but trials report nothing")]
