from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.strategies.steps import Steps, is_due
from tests.properties import examples


@examples(30)
@given(st.integers(1, 9), st.lists(st.integers(1, 5), max_size=20))
def test_something_is_due_once_in_as_many_steps(every, executions):
    totals = list(itertools.accumulate(executions, initial=0))
    due = [is_due(every, before, after) for before, after in itertools.pairwise(totals)]
    assert sum(due) == len({total // every for total in totals} - {0})
    if set(executions) == {1}:
        assert due == [total % every == 0 for total in totals[1:]]


def test_steps_are_counted_over_epochs_and_executions_of_several():
    steps = Steps()
    found = []
    for _ in range(2):
        steps.begin_epoch()
        found += [steps.count(batch) for batch in (1, 3, 4)]
    assert found == [(0, 2), (2, 4), (4, 5), (5, 7), (7, 9), (9, 10)]
