from experiment.results.trial_times import TrialTime, TrialTimes


def times(*attempts):
    """Return the times of attempts: trial, start, end or None, and slots."""
    found = TrialTimes()
    for trial, start, end, *slots in attempts:
        found.begin(trial, start, slots)
        if end is not None:
            found.end(trial, end)
    return found


def test_a_trial_that_has_ended_has_its_times_and_slots():
    found = times((1, 2.0, 5.0, "1.0.0", "1.1.0"), (0, 2.5, None, "1.2.0"))
    assert found.of(1) == TrialTime(2.0, 5.0, ("1.0.0", "1.1.0"))
    assert found.of(0) is None
    assert found.of(7) is None


def test_the_last_attempt_counts():
    found = times((0, 1.0, 2.0, "1.0.0"), (0, 3.0, None, "1.1.0"))
    assert found.of(0) is None
    found.end(0, 4.0)
    assert found.of(0) == TrialTime(3.0, 4.0, ("1.1.0",))


def test_an_outcome_from_a_trial_folder_has_no_slot():
    assert times((0, 1.0, 1.0)).of(0) == TrialTime(1.0, 1.0, ())


def test_the_same_attempts_are_equal():
    assert times((0, 1.0, 2.0, "1.0.0")) == times((0, 1.0, 2.0, "1.0.0"))
    assert times((0, 1.0, 2.0, "1.0.0")) != times((0, 1.0, 2.0, "1.1.0"))


def test_the_times_of_a_trial_name_its_application_whose_slots_are_not_those_of_others():
    found = TrialTimes()
    for trial in (0, 1):
        found.begin_application()
        found.begin(trial, 1.0, ["1.0.0"])
        found.end(trial, 2.0)
    assert [found.of(trial).application for trial in (0, 1)] == [1, 2]
