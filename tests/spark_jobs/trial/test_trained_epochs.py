"""The epochs that the attempts of a trial have trained in Keras."""

import math
from types import SimpleNamespace

import pytest

from spark_jobs.trial.trained_epochs import TrainedEpochs


@pytest.fixture(autouse=True)
def checkpoints(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    return tmp_path / "checkpoint"


def trained(folder, *fits, repeat=0, **arguments):
    """Train epochs of some fits, each given as (first, losses); return what the Histories have."""
    epochs, found = TrainedEpochs(folder, **arguments), []
    for first, losses in fits:
        fit = epochs.begin(repeat)
        numbers = list(range(first, first + len(losses)))
        for number, loss in zip(numbers, losses, strict=True):
            fit.add(number, {"loss": loss})
        history = SimpleNamespace(epoch=numbers, history={"loss": list(losses)} if losses else {})
        fit.complete(history)
        found.append((history.epoch, history.history))
    return found


def test_a_first_attempt_has_its_own_epochs(tmp_path):
    assert trained(tmp_path, (0, [3.0, 2.0]), (2, [1.0])) == [
        ([0, 1], {"loss": [3.0, 2.0]}),
        ([2], {"loss": [1.0]}),
    ]


def test_later_attempts_have_the_epochs_before_their_own_too(tmp_path):
    trained(tmp_path, (0, [5.0, 4.0, 3.0]))
    assert trained(tmp_path, (2, [2.5])) == [([0, 1, 2], {"loss": [5.0, 4.0, 2.5]})]
    assert trained(tmp_path, (3, [1.0])) == [([0, 1, 2, 3], {"loss": [5.0, 4.0, 2.5, 1.0]})]
    assert trained(tmp_path, (4, [])) == [([0, 1, 2, 3], {"loss": [5.0, 4.0, 2.5, 1.0]})]
    assert trained(tmp_path, (0, [9.0])) == [([0], {"loss": [9.0]})]  # without a checkpoint


def test_those_of_a_trial_that_resumes_from_another_one_begin_later(tmp_path):
    trained(tmp_path, (3, [5.0, 4.0]))
    assert trained(tmp_path, (5, [9.0])) == [([3, 4, 5], {"loss": [5.0, 4.0, 9.0]})]
    assert trained(tmp_path, (6, [])) == [([3, 4, 5], {"loss": [5.0, 4.0, 9.0]})]
    assert trained(tmp_path, (3, [2.0])) == [([3], {"loss": [2.0]})]
    assert trained(tmp_path, (7, [1.0])) == [([7], {"loss": [1.0]})]  # it would lack one


def test_no_fit_has_the_epochs_of_another_one(tmp_path):
    """A later attempt may skip the first fit, so the second one would be taken for it."""
    trained(tmp_path, (0, [5.0, 4.0]), (0, [3.0, 2.0]))
    assert trained(tmp_path, (1, [1.0])) == [([1], {"loss": [1.0]})]


def test_a_second_fit_has_no_epochs_of_attempts_before(tmp_path):
    trained(tmp_path, (0, [5.0]))
    assert trained(tmp_path, (1, [4.0]), (1, [3.0])) == [
        ([0, 1], {"loss": [5.0, 4.0]}),
        ([1], {"loss": [3.0]}),
    ]


def test_repeats_have_epochs_of_their_own(tmp_path):
    trained(tmp_path, (0, [5.0, 4.0]))
    assert trained(tmp_path, (1, [1.0]), repeat=1) == [([1], {"loss": [1.0]})]


def test_a_history_that_would_lack_epochs_stays_as_it_is(tmp_path):
    trained(tmp_path, (0, [5.0]))
    assert trained(tmp_path, (2, [3.0])) == [([2], {"loss": [3.0]})]


def test_metrics_that_not_all_epochs_have_are_shorter(tmp_path):
    """As of validation_freq=2."""
    first = TrainedEpochs(tmp_path).begin(0)
    first.add(0, {"loss": math.nan})
    first.add(1, {"loss": 2.0, "val_loss": 3.0})
    history = SimpleNamespace(epoch=[2, 3], history={"loss": [1.0, 0.5], "val_loss": [2.5]})
    TrainedEpochs(tmp_path).begin(0).complete(history)
    assert history.history == {
        "loss": pytest.approx([math.nan, 2.0, 1.0, 0.5], nan_ok=True),
        "val_loss": [3.0, 2.5],
    }


def test_a_part_of_a_line_is_left_out(tmp_path):
    trained(tmp_path, (0, [5.0, 4.0]))
    file = tmp_path / "keras-epochs.jsonl"
    file.write_bytes(file.read_bytes()[:-3])  # the host was lost, or its disk was full
    trained(tmp_path, (1, [3.0]))
    assert trained(tmp_path, (2, [2.0])) == [([0, 1, 2], {"loss": [5.0, 3.0, 2.0]})]


def test_epochs_that_cannot_be_kept_are_left_out(tmp_path):
    (tmp_path / "keras-epochs.jsonl").mkdir()
    assert trained(tmp_path, (0, [5.0])) == [([0], {"loss": [5.0]})]


def test_other_workers_read_them_but_add_none(tmp_path):
    trained(tmp_path, (0, [5.0]))
    assert trained(tmp_path, (1, [4.0]), writes=False) == [([0, 1], {"loss": [5.0, 4.0]})]
    assert trained(tmp_path, (2, [])) == [([0], {"loss": [5.0]})]


def test_without_a_folder_for_checkpoints_no_epoch_is_kept(tmp_path, checkpoints):
    checkpoints.rmdir()
    trained(tmp_path, (0, [5.0]))
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_a_fit_may_remove_the_folder_for_checkpoints(tmp_path, checkpoints):
    epochs = TrainedEpochs(tmp_path)
    epochs.begin(0)
    checkpoints.rmdir()
    epochs.begin(0).add(0, {"loss": 1.0})
    assert (tmp_path / "keras-epochs.jsonl").exists()


@pytest.mark.parametrize("losses", [[2.0], []])
def test_a_later_attempt_under_downpour_has_the_metrics_of_a_history_only(tmp_path, losses):
    first = TrainedEpochs(tmp_path).begin(0)
    first.add(0, {"loss": 3.0, "downpour/staleness": 0.0, "downpour/waiting": 0.5})
    assert trained(tmp_path, (1, losses))[0][1] == {"loss": [3.0, *losses]}
