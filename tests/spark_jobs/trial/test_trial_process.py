"""Outcomes of trials, as their processes find them."""

from types import SimpleNamespace

import cloudpickle
import pytest

from search.trial import Trial
from spark_jobs.messages import Attempt
from spark_jobs.trial.trial_process import Program, evaluate


@pytest.mark.parametrize("key", [None, "val_loss"])
@pytest.mark.parametrize(("number", "kind"), [(1, "invalid value"), (2, "lost executor")])
def test_no_epoch_left_after_a_lost_attempt_is_its_loss(tmp_path, key, number, kind):
    """Keras restores a checkpoint of the attempt before, which was lost after the last epoch."""

    def train():
        return SimpleNamespace(history={}, epoch=[])

    program = Program(function=cloudpickle.dumps(train), key=key, direction="min")
    outcome = evaluate(program, Attempt(Trial(0, {}), number), tmp_path)
    assert (outcome.status, outcome.error.kind) == ("failed", kind)
    assert outcome.error.message.startswith("got a History without epochs")
